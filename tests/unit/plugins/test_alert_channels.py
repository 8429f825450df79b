"""Channels of alerts, against real servers of this machine."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from pytest_httpserver import HTTPServer
from structlog.testing import capture_logs
from tests.black_hole import black_hole
from tests.self_signed import write_certificate
from tests.smtp_server import SmtpServer
from tests.waiting import until
from werkzeug import Request, Response

from headrace.plugins import Registry
from headrace.sdk import Alert, AlertChannel, ConfigError, ConfigErrors, RetriableError
from headrace.store import AlertStore, NewAlert, memory_database
from headrace.worker import AlertSender
from headrace_plugins.alert_channels import (
    AlertNotSentError,
    EmailChannel,
    LogChannel,
    WebhookChannel,
)

pytestmark = pytest.mark.timeout(60)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "hunter2-of-tests"  # noqa: S105 - no secret
ALERT = Alert(
    id="u1-7-1-failed",
    kind="failed",
    at=NOW,
    job="orders",
    run=7,
    subject="Run 7 of job orders has failed",
    text="Run 7 of job orders has failed: größer.\n.\nJob: orders\n",
    details={"read": 3},
)


def opened(kind: type[AlertChannel], **config: str) -> AlertChannel:
    made = kind()
    keys = {key.replace("_", "."): value for key, value in config.items()}
    made.configure(kind.config_def().parse(keys))
    return made


def test_all_are_found_by_their_names() -> None:
    registry = Registry()
    assert registry.alert_channel("log") is LogChannel
    assert registry.alert_channel("webhook") is WebhookChannel
    assert registry.alert_channel("email") is EmailChannel


@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_the_log_has_a_line_for_each_alert(level: str) -> None:
    structlog.reset_defaults()
    with capture_logs() as logs:
        opened(LogChannel, level=level).send(ALERT)
    assert logs == [
        {
            "event": "Run 7 of job orders has failed",
            "log_level": level,
            "alert": "u1-7-1-failed",
            "kind": "failed",
            "job": "orders",
            "run": 7,
        }
    ]


def webhook(server: HTTPServer, path: str = "/in", **more: str) -> AlertChannel:
    return opened(WebhookChannel, url=server.url_for(path), **more)


def test_a_web_service_gets_the_alert_as_json(httpserver: HTTPServer) -> None:
    httpserver.expect_oneshot_request(
        "/in", method="POST", headers={"Authorization": f"Bearer {SECRET}"}
    ).respond_with_data("", status=204)
    with closing(webhook(httpserver, header_value=f"Bearer {SECRET}")) as channel:
        channel.send(ALERT)
    [(request, _)] = httpserver.log
    assert json.loads(request.data) == {
        "id": "u1-7-1-failed",
        "kind": "failed",
        "at": "2026-01-01T00:00:00+00:00",
        "job": "orders",
        "run": 7,
        "subject": ALERT.subject,
        "text": ALERT.text,
        "details": {"read": 3},
    }
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Idempotency-Key"] == ALERT.id


@pytest.mark.parametrize("status", [302, 400, 404, 500])
def test_an_answer_that_is_no_success_is_an_error_without_the_address(
    httpserver: HTTPServer, status: int
) -> None:
    httpserver.expect_request(f"/{SECRET}").respond_with_data(SECRET, status=status)
    with (
        closing(webhook(httpserver, f"/{SECRET}")) as channel,
        pytest.raises(
            AlertNotSentError, match=f"127.0.0.1|localhost returned status {status}"
        ) as raised,
    ):
        channel.send(ALERT)
    assert SECRET not in str(raised.value)


def test_a_service_that_is_not_there_or_says_nothing_is_tried_again(
    httpserver: HTTPServer,
) -> None:
    begun = time.monotonic()
    with black_hole(httpserver.port) as hole:
        hole.silent = True
        for port in (hole.port, 1):
            url = f"http://127.0.0.1:{port}/{SECRET}"
            with (
                closing(opened(WebhookChannel, url=url, timeout_ms="300")) as channel,
                pytest.raises(RetriableError, match="cannot be reached") as raised,
            ):
                channel.send(ALERT)
            assert SECRET not in str(raised.value)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("url", ["ftp://h/x", "hooks.example.com", f"http:///{SECRET}"])
def test_an_address_that_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        opened(WebhookChannel, url=url)
    assert SECRET not in str(raised.value)


def test_a_header_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match="header"):
        opened(WebhookChannel, url="http://h/", header_value="größer")


@pytest.fixture
def services() -> Iterator[HTTPServer]:
    """Answer several requests at a time."""
    with HTTPServer(threaded=True) as server:
        yield server


def test_a_failing_service_gets_each_alert_once_it_is_well_and_a_hanging_one_delays_no_other(
    services: HTTPServer,
) -> None:
    got: list[str] = []
    over = threading.Event()

    def flaky(request: Request) -> Response:
        got.append(json.loads(request.data)["id"])
        return Response(status=500 if len(got) == 1 else 200)

    def hangs(_: Request) -> Response:
        over.wait(30)
        return Response(status=200)

    services.expect_request("/flaky").respond_with_handler(flaky)
    services.expect_request("/hangs").respond_with_handler(hangs)
    store = AlertStore(memory_database())
    sender = AlertSender(
        store=store,
        owner="w1",
        is_dead=lambda _: False,
        clock=lambda: datetime.now(UTC),
        lease_clock=lambda: datetime.now(UTC),
        channels={
            "flaky": lambda: webhook(services, "/flaky"),
            "hangs": lambda: webhook(services, "/hangs"),
        },
        interval=timedelta(milliseconds=10),
        first_wait=timedelta(milliseconds=50),
    )
    now = datetime.now(UTC)
    alerts = [replace(ALERT, id=name, at=now) for name in ("1", "2")]
    store.add([NewAlert(each, ["hangs", "flaky"]) for each in alerts])
    with sender.sending():
        until(lambda: sorted(got) == ["1", "1", "2"])
        over.set()
        until(lambda: not store.has_waiting(["hangs", "flaky"], datetime.now(UTC)))
    ways = [way for each in store.alerts() for way in each.deliveries]
    assert {way.state for way in ways} == {"sent"}
    assert sorted(way.attempts for way in ways) == [1, 1, 1, 2]


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificate(tmp_path_factory.mktemp("mail") / "both.pem")


def mail(server: SmtpServer, **more: str) -> AlertChannel:
    config = {
        "host": "127.0.0.1",
        "port": str(server.port),
        "from": "headrace@example.com",
        "to": "ann@example.com,bob@example.com",
        **({} if server.certificate is None else {"ca": str(server.certificate)}),
    }
    return opened(EmailChannel, **{**config, **more})


@pytest.fixture(params=["starttls", "tls"])
def server(request: pytest.FixtureRequest, pem: Path) -> Iterator[SmtpServer]:
    made = SmtpServer(
        certificate=pem, from_begin=request.param == "tls", users={"headrace": SECRET}
    )
    with made.serving():
        yield made


def secure(server: SmtpServer, **more: str) -> AlertChannel:
    security = "tls" if server.from_begin else "starttls"
    return mail(
        server, **{"security": security, "user": "headrace", "password": SECRET, **more}
    )


def test_a_mail_goes_encrypted_to_all_recipients(server: SmtpServer) -> None:
    secure(server).send(ALERT)
    [sent] = server.mails
    assert sent["Subject"] == "[Headrace] Run 7 of job orders has failed"
    assert sent["From"] == "headrace@example.com"
    assert sent["To"] == "ann@example.com, bob@example.com"
    assert sent["Message-ID"] == "<u1-7-1-failed@alerts.headrace>"
    assert sent["Date"] == "Thu, 01 Jan 2026 00:00:00 +0000"
    assert sent.get_content().replace("\r\n", "\n") == ALERT.text
    assert server.recipients == [["ann@example.com", "bob@example.com"]]
    assert server.logins == [("headrace", True)]


def test_a_wrong_password_is_said_without_it(server: SmtpServer) -> None:
    wrong = SECRET[::-1]
    with pytest.raises(RetriableError, match=r"535 5\.7\.8 wrong user") as raised:
        secure(server, password=wrong).send(ALERT)
    assert wrong not in str(raised.value)
    assert server.mails == []


def test_a_server_whose_certificate_is_not_trusted_gets_nothing(server: SmtpServer) -> None:
    certificate, server.certificate = server.certificate, None
    channel = secure(server)  # by the certificates of the system
    server.certificate = certificate
    with pytest.raises(RetriableError, match="CERTIFICATE_VERIFY_FAILED"):
        channel.send(ALERT)
    assert (server.mails, server.logins) == ([], [])


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none\n")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(ConfigError, match="no readable certificates") as raised:
            mail(SmtpServer(port=1), ca=str(tmp_path / name))
        assert raised.value.field == "ca"


def test_no_password_goes_over_a_plain_line() -> None:
    with SmtpServer(users={"headrace": SECRET}).serving() as plain:
        with pytest.raises(ConfigError, match="plain text"):
            mail(plain, security="none", user="headrace", password=SECRET)
        # It offers no STARTTLS: nothing is sent.
        with pytest.raises(RetriableError, match="STARTTLS"):
            mail(plain, user="headrace", password=SECRET).send(ALERT)
        assert (plain.mails, plain.logins) == ([], [])
        mail(plain, security="none").send(ALERT)
        assert len(plain.mails) == 1


@pytest.mark.parametrize("alone", [{"user": "a"}, {"password": "b"}])
def test_a_user_and_a_password_belong_together(alone: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="must be set together"):
        mail(SmtpServer(port=1), **alone)


def test_a_mail_that_is_taken_is_sent_though_the_goodbye_fails() -> None:
    with SmtpServer(drops_quit=True).serving() as plain:
        mail(plain, security="none").send(ALERT)
        assert len(plain.mails) == 1


def test_a_mail_that_is_not_taken_is_an_error() -> None:
    with SmtpServer(fails=[b"451 4.3.0 try later"]).serving() as plain:
        channel = mail(plain, security="none")
        with pytest.raises(RetriableError, match=r"451 4\.3\.0 try later"):
            channel.send(ALERT)
        channel.send(ALERT)
        assert len(plain.mails) == 1


def test_recipients_that_are_refused_keep_no_other_from_the_mail() -> None:
    structlog.reset_defaults()
    with SmtpServer(refuses={"bob@example.com"}).serving() as plain:
        with capture_logs() as logs:
            mail(plain, security="none").send(ALERT)
        assert plain.recipients == [["ann@example.com"]]
        assert [line["refused"] for line in logs] == [["bob@example.com"]]
        plain.refuses.add("ann@example.com")
        with pytest.raises(RetriableError, match="nobody of that name"):
            mail(plain, security="none").send(ALERT)


def test_a_mail_server_that_hangs_is_given_up() -> None:
    begun = time.monotonic()
    with SmtpServer(hangs=True).serving() as hung, pytest.raises(RetriableError):
        mail(hung, security="none", timeout_ms="300").send(ALERT)
    assert time.monotonic() - begun < 20


def test_a_name_with_a_line_break_adds_no_header() -> None:
    hostile = replace(ALERT, subject="Run 7 of job a\r\nBcc: eve@example.com has failed")
    with SmtpServer().serving() as plain:
        mail(plain, security="none").send(hostile)
        [sent] = plain.mails
        assert sent["Bcc"] is None
        assert sent["Subject"].endswith("a Bcc: eve@example.com has failed")


def test_what_is_missing_is_said_at_once() -> None:
    with pytest.raises(ConfigErrors) as raised:
        opened(EmailChannel)
    assert {error.field for error in raised.value.errors} == {"host", "from", "to"}
