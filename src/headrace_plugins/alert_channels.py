"""The built-in alert channels: the log, a webhook, and e-mail."""

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
    """A channel did not accept an alert."""

    code = "alert.not_sent"


class Level(StrEnum):
    """The log level of an alert."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogChannelSettings(Settings):
    """The settings of ``LogChannel``."""

    level: Level = setting("The log level of the alerts.", default=Level.WARNING)


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
        "The http or https URL that alerts are posted to. It is treated as a secret, as "
        "webhook URLs often contain one.",
        importance=Importance.HIGH,
    )
    header_name: str = setting(
        "The name of an additional header.",
        default="Authorization",
        validator=NonEmptyString(),
    )
    header_value: Password | None = setting(
        "The value of the additional header, such as `Bearer ${env:ALERTS_TOKEN}`. By default "
        "the header is not sent.",
        default=None,
    )
    timeout_ms: int = setting(
        "The timeout to connect, and for each part of a response, in milliseconds.",
        default=10_000,
        validator=Range(1, 120_000),
    )


class WebhookChannel(AlertChannel):
    """Posts each alert as a JSON object to a web service.

    The object has `id`, `kind`, `at`, `job`, `run`, `subject`, `text` and `details`. A 2xx
    response means that the alert was accepted; after any other, including redirects, it is
    posted again later. The header `Idempotency-Key` contains the `id`.
    """

    settings: WebhookChannelSettings

    def __init__(self) -> None:
        """Start without a connection."""
        self._client: httpx2.Client | None = None

    @override
    def configure(self, config: Config) -> None:
        self.settings = settings = WebhookChannelSettings.from_config(config)
        url = urlsplit(settings.url.value)
        if url.scheme not in {"http", "https"} or not url.hostname:
            problem = "Invalid URL; expected one such as https://hooks.example.com/alerts."
            raise ConfigError(problem, field="url")  # without the URL, which may be a secret
        self._host = url.hostname
        headers = {}
        if settings.header_value is not None:
            headers[settings.header_name] = settings.header_value.value
        try:
            self._client = httpx2.Client(headers=headers, timeout=settings.timeout_ms / 1000)
        except (UnicodeError, ValueError):
            problem = "The header has characters that are not allowed in headers."
            raise ConfigError(problem, field="header.value") from None

    @override
    def send(self, alert: Alert) -> None:
        assert self._client is not None
        key = {"Idempotency-Key": alert.id}
        try:
            # Read the status only: an endless response body would block.
            with self._client.stream(
                "POST", self.settings.url.value, json=alert.to_json(), headers=key
            ) as answer:
                taken, status = answer.is_success, answer.status_code
        except (httpx2.InvalidURL, httpx2.TransportError) as error:
            # The library's errors may contain the whole URL.
            problem = f"{self._host} cannot be reached: {type(error).__name__}."
            raise RetriableError(problem) from None
        if not taken:
            problem = f"{self._host} returned status {status}."
            raise AlertNotSentError(problem, fix="Check the log of that service.")

    @override
    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class MailSecurity(StrEnum):
    """The encryption of the connection to a mail server."""

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
        "The port; by default 587 with starttls, 465 with tls and 25 with none.",
        default=None,
        validator=NullOr(Range(1, 65_535)),
    )
    security: MailSecurity = setting(
        "The encryption of the connection: with STARTTLS (starttls), from the start (tls), or "
        "none. The server's certificate is verified.",
        default=MailSecurity.STARTTLS,
    )
    ca: str | None = setting(
        "A PEM file of trusted CA certificates; by default the system's.",
        default=None,
        meaning=Meaning.PATH,
    )
    user: str | None = setting("The user to log in with. By default no login.", default=None)
    password: Password | None = setting(
        "The user's password, such as `${env:SMTP_PASSWORD}`.", default=None
    )
    sender: str = setting(
        "The sender's address.",
        key="from",
        validator=NonEmptyString(),
        importance=Importance.HIGH,
    )
    recipients: tuple[str, ...] = setting(
        "The recipients' addresses, separated by commas.",
        key="to",
        validator=NonEmptyList(),
        importance=Importance.HIGH,
    )
    timeout_ms: int = setting(
        "The timeout for each response of the server, in milliseconds.",
        default=30_000,
        validator=Range(1, 120_000),
    )


class EmailChannel(AlertChannel):
    """Sends each alert as an e-mail, by SMTP.

    The `Message-ID` contains the alert's id, so that duplicates can be recognized.
    """

    settings: EmailChannelSettings

    @override
    def configure(self, config: Config) -> None:
        self.settings = settings = EmailChannelSettings.from_config(config)
        if (settings.user is None) != (settings.password is None):
            problem = "user and password must be set together."
            raise ConfigError(problem, field="user", fix="Set both, or neither.")
        if settings.password is not None and settings.security is MailSecurity.NONE:
            problem = "The password would be sent in plain text."
            raise ConfigError(problem, field="security", fix="Set it to starttls or tls.")
        try:
            self._tls = ssl.create_default_context(cafile=settings.ca)
        except OSError as error:  # ssl.SSLError is one
            problem = f"{settings.ca} has no readable certificates: {error.strerror}."
            raise ConfigError(problem, field="ca", fix="Set the path of a PEM file.") from None

    @override
    def send(self, alert: Alert) -> None:
        message = self._message(alert)
        recipients = list(self.settings.recipients)
        try:
            server = self._connected()
            try:
                refused = server.send_message(message, self.settings.sender, recipients)
            finally:
                with suppress(OSError, smtplib.SMTPException):  # the result is known by now
                    server.quit()
        except (OSError, smtplib.SMTPException, ValueError) as error:
            problem = f"{self.settings.host}: {_said(error)}"
            raise RetriableError(problem) from None
        if refused:  # other recipients received it, so do not send it again
            log.warning("alert mail refused", refused=sorted(refused), alert=alert.id)

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
        # A job's name may contain a line break, which would start another header.
        message["Subject"] = " ".join(f"[Headrace] {alert.subject}".split())
        message["From"] = self.settings.sender
        message["To"] = ", ".join(self.settings.recipients)
        message["Date"] = format_datetime(alert.at.astimezone(UTC))
        message["Message-ID"] = f"<{alert.id}@alerts.headrace>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(alert.text)
        return message


def _said(error: Exception) -> str:
    """Return the error message of a mail server, or of the connection to it."""
    if isinstance(error, smtplib.SMTPResponseException):
        said = error.smtp_error
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        return f"the server returned {error.smtp_code} {text}"
    return f"{type(error).__name__}: {error}"
