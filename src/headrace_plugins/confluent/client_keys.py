"""The keys by which a converter, or anyone else, says where the schema registry is."""

from urllib.parse import SplitResult, unquote, urlsplit

from headrace.sdk.config import (
    Config,
    ConfigDef,
    ConfigType,
    Importance,
    Meaning,
    NullOr,
    Password,
    Range,
    ValidString,
    Width,
)
from headrace.sdk.errors import ConfigError

__all__ = ["EMBEDDED", "URL_KEY", "client_settings", "registry_config"]

EMBEDDED = "embedded"
"""In place of a URL: the registry in this installation's own store."""
URL_KEY = "schema.registry.url"
_GROUP = "Schema Registry"
_SSL = "schema.registry.ssl"


def registry_config() -> ConfigDef:
    """Give the keys that `open_registry` reads; names and defaults are Confluent's.

    A converter merges them into its own, with `ConfigDef.merged`.
    """
    definition = (
        ConfigDef()
        .define(
            URL_KEY,
            ConfigType.STRING,
            EMBEDDED,
            importance=Importance.HIGH,
            doc="The schema registry's URLs, with commas between them, tried in order; or "
            "embedded, for the registry in this installation's own store.",
            group=_GROUP,
            width=Width.LONG,
            display_name="Schema registry URL",
        )
        .define(
            "schema.registry.request.timeout.ms",
            ConfigType.INT,
            30000,
            validator=Range(at_least=1),
            importance=Importance.LOW,
            doc="How long one request may take, in milliseconds.",
            group=_GROUP,
            display_name="Request time-out",
        )
    )
    return _with_retries(_with_tls(_with_authentication(definition)))


def _with_authentication(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "basic.auth.credentials.source",
            ConfigType.STRING,
            "URL",
            validator=ValidString("URL", "USER_INFO"),
            importance=Importance.MEDIUM,
            doc="Where user and password come from: the URL, or basic.auth.user.info.",
            group=_GROUP,
            display_name="Source of user and password",
        )
        .define(
            "basic.auth.user.info",
            ConfigType.PASSWORD,
            None,
            importance=Importance.MEDIUM,
            doc="User and password, with a colon between them; "
            "used if basic.auth.credentials.source is USER_INFO.",
            group=_GROUP,
            display_name="User and password",
        )
        .define(
            "bearer.auth.credentials.source",
            ConfigType.STRING,
            None,
            validator=NullOr(ValidString("STATIC_TOKEN")),
            importance=Importance.MEDIUM,
            doc="STATIC_TOKEN to send bearer.auth.token; no token is sent if null.",
            group=_GROUP,
            display_name="Source of the token",
        )
        .define(
            "bearer.auth.token",
            ConfigType.PASSWORD,
            None,
            importance=Importance.MEDIUM,
            doc="The token; used if bearer.auth.credentials.source is STATIC_TOKEN.",
            group=_GROUP,
            display_name="Token",
        )
    )


def _with_tls(definition: ConfigDef) -> ConfigDef:
    texts = {
        "ca.location": "A PEM file of the certificates to trust; Mozilla's if null.",
        "certificate.location": "A PEM file of the client's certificate.",
        "key.location": "A PEM file of the client's key; the certificate's file if null.",
    }
    for name, doc in texts.items():
        definition = definition.define(
            f"{_SSL}.{name}",
            ConfigType.STRING,
            None,
            importance=Importance.LOW,
            doc=doc,
            group=_GROUP,
            display_name=name.replace(".", " ").capitalize(),
            meaning=Meaning.PATH,
        )
    return definition.define(
        f"{_SSL}.key.password",
        ConfigType.PASSWORD,
        None,
        importance=Importance.LOW,
        doc="The password of the client's key.",
        group=_GROUP,
        display_name="Key password",
    )


def _with_retries(definition: ConfigDef) -> ConfigDef:
    numbers = {
        "max.retries": (3, "How often each of the URLs is tried again."),
        "retries.wait.ms": (1000, "The longest first wait before trying again; it doubles."),
        "retries.max.wait.ms": (20000, "The longest wait before trying again."),
        "latest.cache.ttl.sec": (60, "How long a subject's newest version is remembered."),
    }
    for name, (default, doc) in numbers.items():
        definition = definition.define(
            name,
            ConfigType.INT,
            default,
            validator=Range(at_least=0),
            importance=Importance.LOW,
            doc=doc,
            group=_GROUP,
            display_name=name.replace(".", " ").capitalize(),
        )
    return definition


def client_settings(config: Config) -> dict[str, str | int | float | Password]:
    """Return the settings of Confluent's Python client. Raises ConfigError, with no secret."""
    given = [part.strip() for part in config.get_str(URL_KEY).split(",") if part.strip()]
    if not given:
        problem = "No URL is given."
        raise ConfigError(problem, field=URL_KEY, fix="Give one, or embedded.")
    parts = [_split(url) for url in given]
    settings: dict[str, str | int | float | Password | None] = {
        "url": ",".join(f"{p.scheme}://{p.netloc.rpartition('@')[2]}{p.path}" for p in parts),
        "timeout": config.get_int("schema.registry.request.timeout.ms") / 1000,
        "cache.latest.ttl.sec": config.get_int("latest.cache.ttl.sec"),
        "cache.capacity": 10_000,
        "ssl.key.password": config.find_password(f"{_SSL}.key.password"),
        **_credentials(config, parts),
    }
    for name in ("ca.location", "certificate.location", "key.location"):
        settings[f"ssl.{name}"] = config.find_str(f"{_SSL}.{name}")
    for name in ("max.retries", "retries.wait.ms", "retries.max.wait.ms"):
        settings[name] = config.get_int(name)
    return {name: value for name, value in settings.items() if value is not None}


def _split(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        _ = found.port  # which raises when it is no number
    except ValueError:
        found = SplitResult("", "", "", "", "")
    if found.scheme not in {"http", "https"} or not found.hostname:
        # The text is not shown: it may hold a password.
        problem = "A schema registry's URL begins with http:// or https:// and names a host."
        fix = "Correct it, as in http://registry.example.com:8081."
        raise ConfigError(problem, field=URL_KEY, fix=fix)
    return found


def _credentials(config: Config, parts: list[SplitResult]) -> dict[str, str | Password]:
    source = config.find_str("bearer.auth.credentials.source")
    if source is not None:
        token = config.find_password("bearer.auth.token")
        if token is None or not token.value.isascii() or not token.value.isprintable():
            problem = "The token is missing, or is not one line of plain characters."
            fix = "Give it, or take bearer.auth.credentials.source out."
            raise ConfigError(problem, field="bearer.auth.token", fix=fix)
        return {
            "bearer.auth.credentials.source": source,
            "bearer.auth.token": token,
            "bearer.auth.logical.cluster": "",
        }
    user = "basic.auth.user.info"
    if config.get_str("basic.auth.credentials.source") == "USER_INFO":
        given = config.find_password(user)
        if given is None or ":" not in given.value:
            problem = "User and password are missing, or have no colon between them."
            raise ConfigError(problem, field=user, fix="Write it as user:password.")
        return {user: given}
    for part in parts:
        if part.username is not None:
            return {user: Password(f"{unquote(part.username)}:{unquote(part.password or '')}")}
    return {}
