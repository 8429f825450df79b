"""The built-in channels of alerts: the log, a web service, e-mail."""

from __future__ import annotations

import smtplib
import ssl
from contextlib import suppress
from datetime import UTC
from email.message import EmailMessage
from email.utils import format_datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
import structlog
from typing_extensions import override

from headrace.sdk import AlertChannel, ConfigError, HeadraceError, RetriableError
from headrace.sdk.config import (
    Importance,
    Meaning,
    NonEmptyList,
    NonEmptyString,
    NullOr,
    Password,
    Range,
    Settings,
    setting,
)

if TYPE_CHECKING:
    from headrace.sdk import Alert
    from headrace.sdk.config import Config

log = structlog.get_logger(__name__)


class AlertNotSentError(HeadraceError):
    """A channel did not take an alert."""

    code = "alert.not_sent"


class Level(StrEnum):
    """As which level of the log an alert is written."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogChannelSettings(Settings):
    """The settings of ``LogChannel``."""

    level: Level = setting("The level of the lines.", default=Level.WARNING)


class LogChannel(AlertChannel):
    """Writes each alert as a line of the server's log."""

    settings: LogChannelSettings

    @override
    def configure(self, config: Config) -> None:
        self.settings = LogChannelSettings.from_config(config)

    @override
    def send(self, alert: Alert) -> None:
        write = {Level.INFO: log.info, Level.WARNING: log.warning, Level.ERROR: log.error}
        about = {"alert": alert.id, "kind": alert.kind, "job": alert.job, "run": alert.run}
        write[self.settings.level](alert.subject, **about)


class WebhookChannelSettings(Settings):
    """The settings of ``WebhookChannel``."""

    url: Password = setting(
        "The address that alerts are posted to, http or https. It is treated as a secret, as "
        "addresses of web hooks often hold one.",
        importance=Importance.HIGH,
    )
    header_name: str = setting(
        "The name of a header that is sent along.",
        default="Authorization",
        validator=NonEmptyString(),
    )
    header_value: Password | None = setting(
        "Its value, such as `Bearer ${env:ALERTS_TOKEN}`; without one it is not sent.",
        default=None,
    )
    timeout_ms: int = setting(
        "How long to wait for a connection, and for each part of an answer, in milliseconds.",
        default=10_000,
        validator=Range(1, 120_000),
    )


class WebhookChannel(AlertChannel):
    """Posts each alert as a JSON object to a web service.

    The object has `id`, `kind`, `at`, `job`, `run`, `subject`, `text` and `details`. An answer
    of the classes 2xx says that it was taken; after any other, redirects included, it is
    posted again later. The header `Idempotency-Key` has the `id`.
    """

    settings: WebhookChannelSettings

    def __init__(self) -> None:
        """Begin without a connection."""
        self._client: httpx2.Client | None = None

    @override
    def configure(self, config: Config) -> None:
        self.settings = settings = WebhookChannelSettings.from_config(config)
        url = urlsplit(settings.url.value)
        if url.scheme not in {"http", "https"} or not url.hostname:
            problem = "Invalid URL; expected one such as https://hooks.example.com/alerts."
            raise ConfigError(problem, field="url")  # without its value, which may be a secret
        self._host = url.hostname
        headers = {}
        if settings.header_value is not None:
            headers[settings.header_name] = settings.header_value.value
        try:
            self._client = httpx2.Client(headers=headers, timeout=settings.timeout_ms / 1000)
        except (UnicodeError, ValueError):
            problem = "The header cannot be sent: it has characters that headers have not."
            raise ConfigError(problem, field="header.value") from None

    @override
    def send(self, alert: Alert) -> None:
        assert self._client is not None
        key = {"Idempotency-Key": alert.id}
        try:
            # Only the status counts; an answer without an end would be read for ever.
            with self._client.stream(
                "POST", self.settings.url.value, json=alert.to_json(), headers=key
            ) as answer:
                taken, status = answer.is_success, answer.status_code
        except (httpx2.InvalidURL, httpx2.TransportError) as error:
            # The errors of the library may show the whole address.
            problem = f"{self._host} cannot be reached: {type(error).__name__}."
            raise RetriableError(problem) from None
        if not taken:
            problem = f"{self._host} answered with {status}."
            raise AlertNotSentError(problem, fix="Look at the log of that service.")

    @override
    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class MailSecurity(StrEnum):
    """How the connection to a mail server is kept from others."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


_PORTS = {MailSecurity.STARTTLS: 587, MailSecurity.TLS: 465, MailSecurity.NONE: 25}


class EmailChannelSettings(Settings):
    """The settings of ``EmailChannel``."""

    host: str = setting(
        "The mail server.", validator=NonEmptyString(), importance=Importance.HIGH
    )
    port: int | None = setting(
        "Its port; by default 587 with starttls, 465 with tls and 25 with none.",
        default=None,
        validator=NullOr(Range(1, 65_535)),
    )
    security: MailSecurity = setting(
        "How the connection is encrypted: after STARTTLS, from its begin (tls), or not at all "
        "(none). The server's certificate is verified.",
        default=MailSecurity.STARTTLS,
    )
    ca: str | None = setting(
        "A PEM file of certificates that may sign the server's; else the system's.",
        default=None,
        meaning=Meaning.PATH,
    )
    user: str | None = setting("Who logs in; without one nobody does.", default=None)
    password: Password | None = setting(
        "Their password, such as `${env:SMTP_PASSWORD}`.", default=None
    )
    sender: str = setting(
        "The address that mails are from.",
        key="from",
        validator=NonEmptyString(),
        importance=Importance.HIGH,
    )
    recipients: tuple[str, ...] = setting(
        "The addresses that they go to, with commas between them.",
        key="to",
        validator=NonEmptyList(),
        importance=Importance.HIGH,
    )
    timeout_ms: int = setting(
        "How long to wait for each answer of the server, in milliseconds.",
        default=30_000,
        validator=Range(1, 120_000),
    )


class EmailChannel(AlertChannel):
    """Sends each alert as a mail, by SMTP.

    Its `Message-ID` is made of the alert's id, so that one that comes twice is known.
    """

    settings: EmailChannelSettings

    @override
    def configure(self, config: Config) -> None:
        self.settings = settings = EmailChannelSettings.from_config(config)
        if (settings.user is None) != (settings.password is None):
            problem = "A user and a password belong together."
            raise ConfigError(problem, field="user", fix="Set both, or none of them.")
        if settings.password is not None and settings.security is MailSecurity.NONE:
            problem = "The password would go over the network in plain text."
            raise ConfigError(problem, field="security", fix="Set it to starttls or tls.")
        try:
            self._tls = ssl.create_default_context(cafile=settings.ca)
        except OSError as error:  # ssl.SSLError is one
            problem = f"{settings.ca} has no certificates that can be read: {error.strerror}."
            raise ConfigError(problem, field="ca", fix="Name a PEM file.") from None

    @override
    def send(self, alert: Alert) -> None:
        message = self._message(alert)
        recipients = list(self.settings.recipients)
        try:
            server = self._connected()
            try:
                refused = server.send_message(message, self.settings.sender, recipients)
            finally:
                with suppress(OSError, smtplib.SMTPException):  # it is sent by then, or not
                    server.quit()
        except (OSError, smtplib.SMTPException, ValueError) as error:
            problem = f"{self.settings.host}: {_said(error)}"
            raise RetriableError(problem) from None
        if refused:  # some others have it: it is not sent again
            log.warning("mail was refused for some", refused=sorted(refused), alert=alert.id)

    def _connected(self) -> smtplib.SMTP:
        """Return a connection to the mail server, encrypted and logged in."""
        settings = self.settings
        port, timeout = settings.port or _PORTS[settings.security], settings.timeout_ms / 1000
        server: smtplib.SMTP
        if settings.security is MailSecurity.TLS:
            server = smtplib.SMTP_SSL(settings.host, port, timeout=timeout, context=self._tls)
        else:
            server = smtplib.SMTP(settings.host, port, timeout=timeout)
        try:
            if settings.security is MailSecurity.STARTTLS:
                server.starttls(context=self._tls)
            if settings.user is not None and settings.password is not None:
                server.login(settings.user, settings.password.value)
        except BaseException:
            server.close()
            raise
        return server

    def _message(self, alert: Alert) -> EmailMessage:
        message = EmailMessage()
        # A job's name may hold a line break, which would begin another header.
        message["Subject"] = " ".join(f"[Headrace] {alert.subject}".split())
        message["From"] = self.settings.sender
        message["To"] = ", ".join(self.settings.recipients)
        message["Date"] = format_datetime(alert.at.astimezone(UTC))
        message["Message-ID"] = f"<{alert.id}@alerts.headrace>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(alert.text)
        return message


def _said(error: Exception) -> str:
    """Return what a mail server has said."""
    if isinstance(error, smtplib.SMTPResponseException):
        said = error.smtp_error
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        return f"it answered with {error.smtp_code} {text}"
    return f"{type(error).__name__}: {error}"
