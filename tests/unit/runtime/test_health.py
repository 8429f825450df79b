"""How a server says that it is."""

import threading
import time
from datetime import timedelta

from structlog.testing import capture_logs

from headrace.runtime.health import Finding, Health, HealthState
from headrace.store import StoreUnavailableError

WELL = Finding(words="at /secret/path")


def asked(health: Health, *, full: bool = True) -> dict[str, object]:
    health.look()
    while health.looking:
        time.sleep(0.001)
    return health.to_json(full=full)


def test_the_worst_of_all_is_how_the_server_is() -> None:
    found = {"a": HealthState.HEALTHY}
    health = Health({"a": lambda: Finding(found["a"], "it is so"), "b": lambda: WELL})
    assert asked(health)["status"] == "healthy"
    for state in (HealthState.DEGRADED, HealthState.UNHEALTHY, HealthState.HEALTHY):
        found["a"] = state
        assert asked(health)["status"] == state.value
    found["a"] = HealthState.DEGRADED
    assert asked(health)["message"] == "a: it is so"


def test_what_raises_is_unhealthy() -> None:
    def look() -> Finding:
        raise StoreUnavailableError

    told = asked(Health({"store": look}))
    assert told["status"] == "unhealthy"
    assert StoreUnavailableError().problem in str(told["message"])


def test_a_change_of_state_is_logged_once() -> None:
    found = [WELL]
    health = Health({"disk": lambda: found[0]})
    with capture_logs() as logged:
        for each in (WELL, Finding(HealthState.UNHEALTHY, "/data is full"), WELL):
            found[0] = each
            asked(health)
            asked(health)
    assert [(e["log_level"], e["check"], e["message"]) for e in logged] == [
        ("warning", "disk", "/data is full"),
        ("info", "disk", WELL.words),
    ]


def test_who_has_no_token_learns_the_states_and_nothing_else() -> None:
    health = Health({"a": lambda: WELL, "b": lambda: Finding(HealthState.DEGRADED, "/secret")})
    told = asked(health, full=False)
    assert told["checks"] == {"a": {"status": "healthy"}, "b": {"status": "degraded"}}
    assert "secret" not in str(told)


def test_a_check_that_another_request_has_just_started_is_not_late() -> None:
    let_go, waits = threading.Event(), threading.Event()

    def look() -> Finding:
        if waits.is_set():
            let_go.wait()
        return WELL

    health = Health({"a": look})
    asked(health)
    waits.set()
    health.look()
    assert health.to_json(full=True)["status"] == "healthy"
    let_go.set()


def test_what_hangs_is_unhealthy_in_time_and_holds_up_nothing_else() -> None:
    let_go, hangs = threading.Event(), threading.Event()

    def look() -> Finding:
        if hangs.is_set():
            let_go.wait()
        return WELL

    health = Health({"a": look, "b": lambda: WELL}, limit=timedelta(seconds=2))
    assert asked(health)["status"] == "healthy"
    hangs.set()
    before = threading.active_count()
    for _ in range(3):
        began = time.monotonic()
        checks = asked(health)["checks"]
        assert time.monotonic() - began < 5
        assert isinstance(checks, dict)
        assert checks["a"]["status"] == "unhealthy"
        assert "at /secret/path" in checks["a"]["message"]  # as it was last
        assert checks["b"]["status"] == "healthy"
    assert threading.active_count() <= before + 2  # one look hangs, however often it is asked
    let_go.set()
    while health.to_json(full=True)["status"] != "healthy":
        time.sleep(0.001)
