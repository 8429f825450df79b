"""What fails at every turn is told when it begins, and when it is over."""

from structlog.testing import capture_logs

from headrace.repeated_errors import RepeatedErrors
from headrace.store import StoreUnavailableError


def test_an_error_that_stays_is_told_once_and_its_end_too() -> None:
    errors = RepeatedErrors("leases are not renewed now", "leases are renewed again")
    with capture_logs() as told:
        for problem in ("", *["It is away."] * 3, "It is full.", "", "", "It is full."):
            with errors.logged():
                if problem:
                    raise StoreUnavailableError(problem)
    assert [each["event"] for each in told] == [
        *["leases are not renewed now"] * 2,
        "leases are renewed again",
        "leases are not renewed now",
    ]
    assert "It is away." in told[0]["why"]
    assert not any("exc_info" in each for each in told)


def test_an_error_that_stays_is_told_again_after_a_while(monkeypatch) -> None:
    errors = RepeatedErrors("leases are not renewed now", "leases are renewed again")
    monkeypatch.setattr("headrace.repeated_errors._AGAIN_SECONDS", 0.0)
    with capture_logs() as told:
        for _ in range(3):
            with errors.logged():
                raise ValueError
    assert [each["log_level"] for each in told] == ["error"] * 3
    assert all(isinstance(each["exc_info"], ValueError) for each in told)
