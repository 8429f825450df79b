"""The channels of alerts as settings name them."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest
from pytest_httpserver import HTTPServer
from tests.unit.control.test_alerts import document
from tests.unit.worker.scripts import now
from tests.waiting import until
from typing_extensions import override

from headrace.metrics import WorkerMetrics
from headrace.model import Job, JobState, PluginNotFoundError, Stamp, Trigger
from headrace.plugins import Secrets
from headrace.runtime.alerts import Alerting
from headrace.sdk import Alert, AlertChannel, Boundaries, ConfigError, ConfigErrors
from headrace.sdk.config import Config, Password, Settings, setting
from headrace.settings import Settings as ProcessSettings
from headrace.store import JobStore, NewAlert, NewRun, memory_database
from headrace.worker import Owner

SECRET = "hunter2-of-tests"  # noqa: S105 - no secret


class KeptSettings(Settings):
    """The settings of ``Kept``."""

    key: Password | None = setting("Any.", default=None)


class Kept(AlertChannel):
    """Keeps what it is sent."""

    settings: KeptSettings
    got: ClassVar[list[tuple[str, Password | None]]] = []

    @override
    def configure(self, config: Config) -> None:
        self.settings = KeptSettings.from_config(config)

    @override
    def send(self, alert: Alert) -> None:
        self.got.append((alert.kind, self.settings.key))


KEPT = f"{Kept.__module__}.{Kept.__qualname__}"
Make = Callable[..., Alerting]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    Kept.got.clear()
    with closing(Owner(tmp_path / "workers")) as owner:

        def alerting(**channels: dict[str, str]) -> Alerting:
            book = WorkerMetrics(clock=now)
            return Alerting(
                settings=ProcessSettings(home=tmp_path, alerts=channels),
                secrets=Secrets(),
                jobs=JobStore(memory_database()),
                owner=lambda: owner,
                clock=now,
                lease_clock=now,
                book=lambda: book,
            )

        yield alerting


def test_without_settings_there_is_the_log(make: Make) -> None:
    alerting = make()
    assert dict(alerting.configured) == {"log": {"type": "log"}}
    [result] = alerting.test("ann")
    assert (result.channel, result.type, result.error) == ("log", "log", None)


def test_a_command_without_alerts_looks_for_no_plugin(make: Make) -> None:
    alerting = make()
    alerting.check()
    alerting.drain()
    assert "registry" not in vars(alerting)


@pytest.mark.parametrize(
    ("channel", "field"),
    [
        ({}, "alerts.ops"),
        ({"type": "webhook"}, "alerts.ops.url"),
        ({"type": "webhook", "url": "x", "urk": "y"}, "alerts.ops.urk"),
        ({"type": "webhook", "url": "no address"}, "alerts.ops.url"),
        ({"type": "log", "level": "loud"}, "alerts.ops.level"),
        (
            {"type": "email", "host": "h", "from": "a", "to": "b", "user": "u"},
            "alerts.ops.user",
        ),
    ],
)
def test_settings_that_are_not_valid_keep_a_server_from_starting(
    make: Make, channel: dict[str, str], field: str
) -> None:
    with pytest.raises(ConfigErrors) as raised, make(ops=channel).serving():
        pass
    assert [error.field for error in raised.value.errors] == [field]


def test_a_type_that_is_none_is_named(make: Make) -> None:
    with pytest.raises(PluginNotFoundError, match="'emial'") as raised:
        make(ops={"type": "emial"}).sender  # noqa: B018 - it raises
    assert raised.value.close_matches == ("email",)
    assert raised.value.field == "alerts.ops.type"


def test_a_reference_is_read_when_the_channel_is_opened_and_shown_nowhere(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("")
    alerting = make(ops={"type": KEPT, "key": f"${{dir:{tmp_path}:token}}"})
    alerting.sender  # noqa: B018 - what it refers to may come later
    (tmp_path / "token").unlink()
    [result] = alerting.test("ann")
    assert "has no value" in str(result.error)
    for value in (SECRET, SECRET[::-1]):
        (tmp_path / "token").write_text(f"{value}\n")
        [result] = alerting.test("ann")
        assert result.error is None
        assert Kept.got[-1] == ("test", Password(value))
        assert alerting.secrets.redacted(f"a {value}") == "a [hidden]"


def test_a_secret_that_is_written_out_is_hidden_too(make: Make, httpserver: HTTPServer) -> None:
    alerting = make(ops={"type": "webhook", "url": httpserver.url_for(f"/{SECRET}")})
    [result] = alerting.test("ann")  # it is answered with 500
    assert SECRET not in str(result)
    assert "[hidden]" in alerting.secrets.redacted(httpserver.url_for(f"/{SECRET}"))


def add_job(alerting: Alerting) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    wanted = Job(
        name="orders",
        uid="",
        document=document({"late": "1 hour", "failed": False}),
        version=1,
        state=JobState.RUNNING,
        changed=at,
        by="",
    )
    alerting.jobs.create(wanted, None, Stamp(at, "ann"))
    window = Boundaries.between(at, at + timedelta(hours=1))
    run = NewRun(boundaries=window, trigger=Trigger.SCHEDULE, due=at)
    alerting.jobs.add_runs("orders", [run], Stamp(at, "ann"))


def counted(alerting: Alerting) -> dict[str, float]:
    return {
        f"{sample.labels.get('kind', '')}{sample.labels.get('channel', '')}": sample.value
        for sample in alerting.book().samples()
        if "alert" in sample.name and sample.value
    }


def test_a_server_tells_of_late_runs_and_counts_what_it_tells(make: Make) -> None:
    alerting = make(ops={"type": KEPT}, bad={"type": "webhook", "url": "http://127.0.0.1:1/"})
    add_job(alerting)
    with alerting.serving():
        until(lambda: Kept.got == [("late", None)])
        until(lambda: "bad" in counted(alerting))
    assert counted(alerting) == {"late": 1, "bad": 1}


def test_a_command_sends_what_is_late_before_it_ends(make: Make) -> None:
    alerting = make(ops={"type": KEPT})
    add_job(alerting)
    alerting.drain()
    alerting.drain()
    assert Kept.got == [("late", None)]


def test_an_alert_for_a_channel_that_is_gone_waits_for_nobody(make: Make) -> None:
    alerting = make(ops={"type": KEPT})
    made = Alert(id="a", kind="failed", at=now(), job="orders", subject="s", text="t")
    alerting.store.add([NewAlert(made, ["former", "ops"])])
    alerting.drain()
    [stored] = alerting.alerts("orders")
    assert [each.state for each in stored.deliveries] == ["waiting", "sent"]


def test_a_channel_cannot_be_opened_by_a_config_that_does_not_parse(make: Make) -> None:
    alerting = make(ops={"type": "log", "level": "${env:HEADRACE_NO_SUCH}"})
    with pytest.raises(ConfigError) as raised:
        alerting.sender.channels["ops"]()
    assert "alerts.ops.level" in str(raised.value)
