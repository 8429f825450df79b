"""The keys by which a converter, or anyone else, says where the schema registry is."""

from headrace.sdk.config import (
    ConfigDef,
    ConfigType,
    Importance,
    Meaning,
    NullOr,
    Range,
    ValidString,
    Width,
)

__all__ = ["EMBEDDED", "URL_KEY", "registry_config"]

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
        "ca.location": "A PEM file of the certificates to trust; the system's if null.",
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
        "max.retries": (3, "How often all the URLs are tried again."),
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
