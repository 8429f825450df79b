"""The client of schema registries over HTTP, based on Confluent's client, and its settings."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit

from typing_extensions import override

from headrace.sdk.config import (
    Importance,
    Meaning,
    NullOr,
    Password,
    Range,
    Settings,
    ValidString,
    Width,
    setting,
)
from headrace.sdk.errors import ConfigError, RetriableError, SetupError
from headrace_plugins.confluent.schema_registry import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegisteredSchema,
    RegistryRefusedError,
    SchemaNotFoundError,
    SchemaReference,
    SchemaRegistry,
    SchemaRegistryError,
    SchemaText,
    SchemaType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.schema_registry import RegisteredSchema as ConfluentRegistered
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError as ConfluentError

    from headrace.sdk.converter import RuntimeRegistry


EMBEDDED = "embedded"
"""Instead of a URL: the registry in this installation's own store."""
URL_KEY = "schema.registry.url"


class RegistrySettings(Settings, group="Schema Registry"):
    """The connection to the schema registry, with Confluent's setting names and values."""

    schema_registry_url: str = setting(
        "The URLs of the schema registry, separated by commas, tried in order; or embedded, "
        "for the registry in this installation's own store.",
        default=EMBEDDED,
        importance=Importance.HIGH,
        width=Width.LONG,
        display_name="Schema registry URL",
    )
    schema_registry_request_timeout_ms: int = setting(
        "The timeout of a request, in milliseconds.",
        default=30000,
        validator=Range(at_least=1),
        importance=Importance.LOW,
        display_name="Request time-out",
    )
    basic_auth_credentials_source: str = setting(
        "The source of user and password: URL, or USER_INFO for basic.auth.user.info.",
        default="URL",
        validator=ValidString("URL", "USER_INFO"),
        display_name="Source of user and password",
    )
    basic_auth_user_info: Password | None = setting(
        "User and password as user:password. Used if basic.auth.credentials.source is "
        "USER_INFO.",
        default=None,
        display_name="User and password",
    )
    bearer_auth_credentials_source: str | None = setting(
        "STATIC_TOKEN to send bearer.auth.token. By default no token is sent.",
        default=None,
        validator=NullOr(ValidString("STATIC_TOKEN")),
        display_name="Source of the token",
    )
    bearer_auth_token: Password | None = setting(
        "The token. Used if bearer.auth.credentials.source is STATIC_TOKEN.",
        default=None,
        display_name="Token",
    )
    schema_registry_ssl_ca_location: str | None = setting(
        "A PEM file of trusted certificates; by default Mozilla's.",
        default=None,
        importance=Importance.LOW,
        display_name="Ca location",
        meaning=Meaning.PATH,
    )
    schema_registry_ssl_certificate_location: str | None = setting(
        "A PEM file with the client's certificate.",
        default=None,
        importance=Importance.LOW,
        display_name="Certificate location",
        meaning=Meaning.PATH,
    )
    schema_registry_ssl_key_location: str | None = setting(
        "A PEM file with the client's key; by default the certificate's file.",
        default=None,
        importance=Importance.LOW,
        display_name="Key location",
        meaning=Meaning.PATH,
    )
    schema_registry_ssl_key_password: Password | None = setting(
        "The password of the client's key.",
        default=None,
        importance=Importance.LOW,
        display_name="Key password",
    )
    max_retries: int = setting(
        "How many times a request to each URL is retried.",
        default=3,
        validator=Range(at_least=0),
        importance=Importance.LOW,
        display_name="Max retries",
    )
    retries_wait_ms: int = setting(
        "The maximum backoff before the first retry, in milliseconds; it doubles with each "
        "retry.",
        default=1000,
        validator=Range(at_least=0),
        importance=Importance.LOW,
        display_name="Retries wait ms",
    )
    retries_max_wait_ms: int = setting(
        "The maximum backoff before any retry, in milliseconds.",
        default=20000,
        validator=Range(at_least=0),
        importance=Importance.LOW,
        display_name="Retries max wait ms",
    )
    latest_cache_ttl_sec: int = setting(
        "How long a subject's latest version is cached, in seconds.",
        default=60,
        validator=Range(at_least=0),
        importance=Importance.LOW,
        display_name="Latest cache ttl sec",
    )


def client_settings(registry: RegistrySettings) -> dict[str, str | int | float | Password]:
    """Return the settings of Confluent's Python client. Raises ConfigError, with no secret."""
    urls = [url.strip() for url in registry.schema_registry_url.split(",") if url.strip()]
    if not urls:
        problem = "No URL is set."
        raise ConfigError(problem, field=URL_KEY, fix="Set a URL, or embedded.")
    parts = [_split(url) for url in urls]
    settings: dict[str, str | int | float | Password | None] = {
        "url": ",".join(f"{p.scheme}://{p.netloc.rpartition('@')[2]}{p.path}" for p in parts),
        "timeout": registry.schema_registry_request_timeout_ms / 1000,
        "cache.latest.ttl.sec": registry.latest_cache_ttl_sec,
        "cache.capacity": 10_000,
        "max.retries": registry.max_retries,
        "retries.wait.ms": registry.retries_wait_ms,
        "retries.max.wait.ms": registry.retries_max_wait_ms,
        "ssl.ca.location": registry.schema_registry_ssl_ca_location,
        "ssl.certificate.location": registry.schema_registry_ssl_certificate_location,
        "ssl.key.location": registry.schema_registry_ssl_key_location,
        "ssl.key.password": registry.schema_registry_ssl_key_password,
        **_credentials(registry, parts),
    }
    return {name: value for name, value in settings.items() if value is not None}


def _split(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        _ = found.port  # raises if it is not a number
    except ValueError:
        found = SplitResult("", "", "", "", "")
    if found.scheme not in {"http", "https"} or not found.hostname:
        # Without the text, which may contain a password.
        problem = "A schema registry's URL must begin with http:// or https:// and have a host."
        fix = "Use a URL such as http://registry.example.com:8081."
        raise ConfigError(problem, field=URL_KEY, fix=fix)
    return found


def _credentials(
    registry: RegistrySettings, parts: list[SplitResult]
) -> dict[str, str | Password]:
    source = registry.bearer_auth_credentials_source
    if source is not None:
        token = registry.bearer_auth_token
        if token is None or not token.value.isascii() or not token.value.isprintable():
            problem = "The token is missing, or is not one line of printable ASCII characters."
            fix = "Set the token, or remove bearer.auth.credentials.source."
            raise ConfigError(problem, field="bearer.auth.token", fix=fix)
        return {
            "bearer.auth.credentials.source": source,
            "bearer.auth.token": token,
            "bearer.auth.logical.cluster": "",
        }
    user = "basic.auth.user.info"
    if registry.basic_auth_credentials_source == "USER_INFO":
        info = registry.basic_auth_user_info
        if info is None or ":" not in info.value:
            problem = "User and password are missing, or not separated by a colon."
            raise ConfigError(problem, field=user, fix="Write user:password.")
        return {user: info}
    for part in parts:
        if part.username is not None:
            return {user: Password(f"{unquote(part.username)}:{unquote(part.password or '')}")}
    return {}


_T = TypeVar("_T")
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_DENIED = {401: "does not accept this user", 403: "does not allow this request by the user"}
_NO_SUBJECT, _NO_VERSION, _NO_LEVEL = 40401, 40402, 40408


class HttpSchemaRegistry:
    """A SchemaRegistryAdmin over HTTP. See `SchemaRegistry` for the methods.

    When unpickled, it opens new connections. The response for a subject and a schema text is
    cached, regardless of `normalize`. An invalid URL raises ConfigError, without secrets.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self.__setstate__(client_settings(settings))

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Exclude connections, locks and cached responses."""
        return self._settings

    def __setstate__(self, settings: dict[str, Any]) -> None:
        """Start with no connection."""
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: SchemaRegistryClient | None = None

    def register(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> int:
        def register(client: SchemaRegistryClient) -> int:
            made = client.register_schema(subject, _sent(schema), normalize)
            client.clear_latest_caches()  # type: ignore[no-untyped-call]
            return made

        return self._ask(register)

    def lookup(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> RegisteredSchema:
        return self._ask(
            lambda c: _registered(c.lookup_schema(subject, _sent(schema), normalize))
        )

    def by_id(self, schema_id: int) -> SchemaText:
        return self._ask(lambda client: _text(client.get_schema(schema_id)))

    def latest(self, subject: str) -> RegisteredSchema:
        return self._ask(lambda client: _registered(client.get_latest_version(subject)))

    def version(self, subject: str, version: int) -> RegisteredSchema:
        return self._ask(lambda c: _registered(c.get_version(subject, version, deleted=True)))

    def versions(self, subject: str) -> list[int]:
        return self._ask(lambda client: client.get_versions(subject))

    def all_versions(self, subject: str) -> list[int]:
        return self._ask(lambda client: client.get_versions(subject, deleted=True))

    def subjects(self) -> list[str]:
        return self._ask(lambda client: client.get_subjects())

    def all_subjects(self) -> list[str]:
        return self._ask(lambda client: client.get_subjects(deleted=True))

    def incompatibilities(self, subject: str, schema: SchemaText) -> list[str]:
        path = f"compatibility/subjects/{quote(subject, safe='')}/versions?verbose=true"

        def check(client: SchemaRegistryClient) -> dict[str, Any]:
            # The public method does not return the reasons.
            return dict(client._rest_client.post(path, _sent(schema).to_dict()))  # noqa: SLF001

        try:
            answer = self._ask(check)
        except IncompatibleSchemaError as error:
            return [error.problem]
        except SchemaNotFoundError as error:
            if error.error_code in {_NO_SUBJECT, _NO_VERSION}:
                return []
            raise
        if answer.get("is_compatible", False):
            return []
        reasons = [str(message) for message in answer.get("messages") or []]
        return reasons or ["The schema is incompatible with an earlier version."]

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        return self._delete(lambda client: client.delete_subject(subject, permanent))

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        return self._delete(lambda client: client.delete_version(subject, version, permanent))

    def compatibility(self, subject: str | None) -> str:
        try:
            return self._ask(lambda client: client.get_compatibility(subject))
        except SchemaNotFoundError as error:
            if subject is None or error.error_code not in {_NO_SUBJECT, _NO_LEVEL}:
                raise
            return self.compatibility(None)

    def set_compatibility(self, subject: str | None, level: str | None) -> None:
        if level is None:
            self._ask(lambda client: client.delete_config(subject))
        else:
            self._ask(lambda client: client.set_compatibility(subject, level))

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _delete(self, call: Callable[[SchemaRegistryClient], _T]) -> _T:
        found = self._ask(call)
        self._connected().clear_caches()  # type: ignore[no-untyped-call]
        return found

    def _ask(self, call: Callable[[SchemaRegistryClient], _T]) -> _T:
        client = self._connected()
        import httpx2  # noqa: PLC0415 - a quarter of a second that few commands need
        from confluent_kafka.schema_registry.error import (  # noqa: PLC0415 - an extra
            SchemaRegistryError as ConfluentError,
        )

        urls = self._settings["url"]
        try:
            return call(client)
        except httpx2.TransportError as error:
            # Without the error's text: a protocol error contains the headers, with the token.
            why = f"the request to {urls} failed with {type(error).__name__}"
            raise _unavailable(why) from None
        except ConfluentError as error:
            raise _error(error, urls) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            problem = f"{urls} does not respond like a schema registry."
            raise SchemaRegistryError(problem, fix=f"Check {URL_KEY}.") from None

    def _connected(self) -> SchemaRegistryClient:
        try:
            from confluent_kafka.schema_registry import (  # noqa: PLC0415 - an extra
                SchemaRegistryClient,
            )
        except ImportError:
            problem = (
                "Schema registries at a URL need Confluent's client, which is not installed."
            )
            raise SetupError(problem, fix="Install headrace[confluent].") from None
        with self._lock:
            if self._opened is None:
                shown = {
                    name: value.value if isinstance(value, Password) else value
                    for name, value in self._settings.items()
                }
                try:
                    self._opened = SchemaRegistryClient(shown)
                except (OSError, ValueError) as error:  # SSLError is an OSError
                    problem = f"The certificates are not usable: {type(error).__name__}."
                    fix = "Check the files and the key's password."
                    raise ConfigError(problem, field="schema.registry.ssl", fix=fix) from None
            return self._opened


def open_registry(
    settings: RegistrySettings, embedded: RuntimeRegistry | None
) -> SchemaRegistry:
    """Return the registry that the settings specify, without connecting to it.

    The embedded registry, from the context, can be used by Python workers of the same machine;
    on a cluster use a URL. Raises ConfigError for an invalid setting, or if the settings
    specify the embedded registry and there is none.
    """
    if settings.schema_registry_url.strip().lower() != EMBEDDED:
        return HttpSchemaRegistry(settings)
    if not isinstance(embedded, SchemaRegistry):
        problem = "No embedded schema registry is available here."
        fix = "Set the URL of a schema registry."
        raise ConfigError(problem, field=URL_KEY, fix=fix)
    return embedded


def _unavailable(why: str) -> RetriableError:
    problem = f"The schema registry is not available: {why}."
    fix = "Check that it runs and that this machine can reach it."
    return RetriableError(problem, fix=fix, field=URL_KEY)


def _error(error: ConfluentError, urls: str) -> SchemaRegistryError | RetriableError:
    status, text = error.http_status_code, error.error_message
    code = error.error_code if error.error_code and error.error_code > 0 else status
    if status in _BUSY:
        return _unavailable(f"{urls} returned status {status}")
    if status in _DENIED:
        problem = f"{urls} {_DENIED[status]}."
        fix = "Check the user, password or token."
        return RegistryRefusedError(problem, error_code=code, fix=fix)
    if status == 409:  # noqa: PLR2004 - Conflict
        return IncompatibleSchemaError(
            text, fix="Change the schema or the compatibility level."
        )
    if str(code).startswith("404") and code != status:  # a plain 404 means a wrong URL
        return SchemaNotFoundError(text, error_code=code)
    if code == InvalidSchemaError.usual_error_code:
        return InvalidSchemaError(text, error_code=code)
    return RegistryRefusedError(text or f"{urls} returned status {status}.", error_code=code)


def _sent(schema: SchemaText) -> Schema:
    from confluent_kafka.schema_registry import Schema  # noqa: PLC0415 - an extra
    from confluent_kafka.schema_registry import SchemaReference as Use  # noqa: PLC0415

    uses = [Use(each.name, each.subject, each.version) for each in schema.references]
    return Schema(schema.text, schema.type.value, uses)


def _text(schema: Schema) -> SchemaText:
    references = tuple(
        SchemaReference(str(each.name), str(each.subject), int(each.version or 0))
        for each in schema.references or ()
    )
    kind = SchemaType(schema.schema_type or SchemaType.AVRO)
    return SchemaText(str(schema.schema_str), kind, references)


def _registered(found: ConfluentRegistered) -> RegisteredSchema:
    version, schema_id = int(found.version or 0), int(found.schema_id or 0)
    return RegisteredSchema(str(found.subject), version, schema_id, _text(found.schema))
