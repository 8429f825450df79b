"""The settings of one process, read once from a file and the environment."""

import math
import os
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationError,
    WithJsonSchema,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)
from typing_extensions import override

from headrace.sdk.durability import Durability
from headrace.sdk.errors import ConfigError
from headrace.sdk.location import Location

__all__ = ["Settings", "load_settings"]

PREFIX = "HEADRACE_"
FILE_VARIABLE = "HEADRACE_CONFIG"
DEFAULT_FILE = Path("headrace.toml")


def _full_path(path: Path) -> Path:
    return path.expanduser().absolute()


def _location(place: object) -> object:
    return Location.of(place, field="topics_dir") if isinstance(place, str | Path) else place


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "headrace"


def _java_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def _duration(value: object) -> object:
    """Parse ``30``, ``0.5 s`` or ``30 s`` as seconds; pydantic parses other forms."""
    if not isinstance(value, str):
        return value
    try:
        return float(value.strip().removesuffix("s"))
    except ValueError:
        return value


FullPath = Annotated[Path, AfterValidator(_full_path)]
FullLocation = Annotated[
    Location,
    BeforeValidator(_location),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "format": "path"}),
    NoDecode,  # an environment variable contains plain text, not JSON
]
Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta(0))]
DurationOrZero = Annotated[timedelta, BeforeValidator(_duration), Field(ge=timedelta(0))]


class Settings(BaseSettings):
    """The settings of a process; frozen.

    A value comes from the caller, else from the variable `HEADRACE_<FIELD>`, else from the
    file, else from the default. Durations are seconds or ISO 8601 (`PT30S`); `spark_conf` and
    `config_providers` in the environment are JSON objects. Create it with `load_settings`,
    which reports an invalid value as a `ConfigError` that names the field.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", validate_default=True
    )

    home: FullPath = Field(
        default=Path("~/.headrace"),
        description="The folder for state: store, topics, logs.",
    )
    cache: FullPath = Field(
        default_factory=_cache_home,
        description="The folder for files that setup can recreate: Spark's jars and the class "
        "archive.",
    )
    store_url: SecretStr | None = Field(
        default=None,
        description="A PostgreSQL database for the store, as postgresql://user@host/database, "
        "if several machines share it; by default the store is a file in `home`. The URL may "
        "contain a password, which is never shown.",
    )
    store_timeout: Duration = Field(
        default=timedelta(seconds=5),
        description="The timeout for a connection, a lock or a statement on the store's "
        "PostgreSQL server, in whole seconds, unless `connect_timeout` in `store_url` sets it. "
        "A server that does not respond for 2 more seconds counts as unavailable until it "
        "responds again.",
    )
    topics_dir: FullLocation = Field(
        default_factory=lambda data: Location.of(data.get("home", Path()) / "topics"),
        description="Where topics are stored: a path or a `file:///` URL.",
    )
    java_home: FullPath | None = Field(
        default_factory=_java_home,
        description="The home of a Java 17 or 21; by default it is searched for.",
    )
    java_idle: DurationOrZero | None = Field(
        default=None,
        description="How long Spark's JVM stays running after a short command "
        "(`run --once`, `preview`, `dlq replay` and similar, with a local master, on Linux): "
        "the next command with the same settings, environment variables and working folder "
        "reuses it. 0: it ends with its command. Default: 300 at a terminal, else 0.",
    )
    durability: Durability = Field(
        default=Durability.FSYNC,
        description="`fsync`: a position moves only after its data is on disk, so the data "
        "survives a power failure; `os`: the operating system decides when to write, so the "
        "data survives a crash of Headrace but not of the machine.",
    )
    master: str = Field(default="local[*]", description="Spark's master.")
    driver_memory: str = Field(
        default="1g", pattern=r"^[0-9]+[kmgKMG]$", description="Heap of Spark's driver."
    )
    spark_conf: Mapping[str, str] = Field(
        default_factory=dict, description="Spark settings; they override Headrace's own."
    )
    spark_failures_max: int = Field(
        default=3,
        ge=1,
        description="If Spark's JVM ends this many times within `spark_failures_window`, the "
        "process ends with exit code 4; until then Spark is restarted.",
    )
    spark_failures_window: Duration = Field(
        default=timedelta(minutes=5),
        description="The time window of `spark_failures_max`.",
    )
    spark_stalled_after: Duration = Field(
        default=timedelta(minutes=10),
        description="How long a task's Spark job may make no progress before the task is shown "
        "and logged as stalled.",
    )
    spark_stalled_cancel: bool = Field(
        default=False, description="Whether a stalled Spark job is cancelled and retried."
    )
    health_free_bytes: int = Field(
        default=100 * 1024 * 1024,
        ge=0,
        description="A server reports the state degraded if less space than this is free where "
        "`home` or the topics are.",
    )
    worker_threads: int = Field(
        default=4, ge=1, description="How many tasks of a worker process data concurrently."
    )
    job_runs: int = Field(
        default=4, ge=1, description="How many runs of offline jobs may run concurrently."
    )
    job_approvers: tuple[str, ...] = Field(
        default=(),
        description="Names of tokens that may approve any job. If any is set, every job needs "
        "an approval; otherwise only jobs with their own approvers do.",
    )
    lease: Duration = Field(
        default=timedelta(seconds=30),
        description="How long a task stays assigned to a worker that sends no heartbeat.",
    )
    server_tokens: FullPath = Field(
        default_factory=lambda data: data.get("home", Path()) / "tokens.json",
        description="The file of client tokens for `headrace server`, which `headrace token` "
        "writes; if the file exists, requests without a token are rejected.",
    )
    server_ssl_certificate: FullPath | None = Field(
        default=None,
        description="A PEM file with the certificate chain with which `headrace server` serves "
        "TLS; without it, the server uses plain HTTP.",
    )
    server_ssl_key: FullPath | None = Field(
        default=None,
        description="A PEM file with the certificate's key; by default the key is read from "
        "the certificate file.",
    )
    server_ssl_key_password: SecretStr | None = Field(
        default=None, description="The password of `server_ssl_key`."
    )
    server_ssl_client_ca: FullPath | None = Field(
        default=None,
        description="A PEM file with the CA certificates for the server's clients; clients "
        "then need a certificate.",
    )
    server_max_request_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1,
        description="The maximum size of a request to the server.",
    )
    server_requests_per_minute: int = Field(
        default=30_000,
        ge=1,
        description="The maximum number of requests per minute from one address.",
    )
    task_shutdown_graceful_timeout: Duration = Field(
        default=timedelta(seconds=5),
        description="How long a stopping task may finish its current batch before it is "
        "cancelled; after the same time again its lease is revoked.",
    )
    connector_timeout: Duration = Field(
        default=timedelta(minutes=1),
        description="How long a connector may take to validate its configuration, to start and "
        "to plan its tasks; after that only this connector fails.",
    )
    restart_failed: bool = Field(
        default=False,
        description="Whether `headrace server` restarts failed tasks and connectors "
        "automatically; `errors.restart.enable` sets it for one connector. Failures that "
        "need a fix first, such as an invalid configuration, are not restarted.",
    )
    restart_delay: Duration = Field(
        default=timedelta(seconds=5),
        description="The wait before the first restart; it doubles with each further restart, "
        "and is reduced at random by up to half.",
    )
    restart_delay_max: Duration = Field(
        default=timedelta(minutes=5), description="The longest wait before a restart."
    )
    restart_attempts: int = Field(
        default=10,
        ge=-1,
        description="The number of consecutive restarts after which a task stays failed; -1 "
        "for no limit.",
    )
    restart_quiet: Duration = Field(
        default=timedelta(minutes=10),
        description="How long a task must run before its restart count is reset.",
    )
    history_age: Duration = Field(
        default=timedelta(days=7),
        description="How long the state history of connectors and tasks is kept.",
    )
    history_count: int = Field(
        default=1000,
        ge=1,
        description="How many state changes, the newest, are kept for each connector and task.",
    )
    audit_age: Duration = Field(
        default=timedelta(days=365),
        description="How long the audit log of changes by callers is kept; at least "
        "`history_age`.",
    )
    store_backups_kept: int = Field(
        default=10,
        ge=0,
        description="How many backups of the store, the newest, are kept in `home`; 0 for all.",
    )
    config_providers: Mapping[str, Mapping[str, str]] = Field(
        default_factory=dict,
        description="The settings of configuration providers, by the provider name used in "
        "references. The name selects the provider, unless the key `class` names another.",
    )
    allowed_paths: tuple[FullPath, ...] | None = Field(
        default=None,
        description="The folders and files that configurations sent to a server may read and "
        "write, including everything below. Default: any path if the server listens on this "
        "machine only and requires no tokens, else the folder `data` in `home`.",
    )
    allow_python_code: bool | None = Field(
        default=None,
        description="Whether configurations sent to a server may run Python: the transform "
        "`Python`, and classes named by import path that are not installed plugins. Default: "
        "only if the server listens on this machine only and requires no tokens.",
    )
    allowed_drivers: tuple[str, ...] | None = Field(
        default=None,
        description="The JDBC drivers that configurations sent to a server may use: patterns "
        "of Maven coordinates, such as `org.postgresql:postgresql:*`, and jars, or folders of "
        "jars, whose paths begin with `/`. Default: any if the server listens on this machine "
        "only and requires no tokens, else none.",
    )
    registry_token: SecretStr | None = Field(
        default=None,
        description="The token that clients of the schema registry must send; without it, "
        "`headrace registry serve` listens on this machine only.",
    )
    registry_ssl_certificate: FullPath | None = Field(
        default=None,
        description="A PEM file with the certificate chain with which `headrace registry "
        "serve` serves TLS; without it, it uses plain HTTP.",
    )
    registry_ssl_key: FullPath | None = Field(
        default=None,
        description="A PEM file with the certificate's key; by default the key is read from "
        "the certificate file.",
    )
    registry_ssl_key_password: SecretStr | None = Field(
        default=None, description="The password of `registry_ssl_key`."
    )
    registry_ssl_client_ca: FullPath | None = Field(
        default=None,
        description="A PEM file with the CA certificates for the registry's clients; clients "
        "then need a certificate.",
    )
    registry_ssl_ca: FullPath | None = Field(
        default=None,
        description="A PEM file with the CA certificates that `headrace registry` trusts when "
        "it connects to a URL; by default the system's.",
    )
    registry_ssl_client_certificate: FullPath | None = Field(
        default=None,
        description="A PEM file with the client certificate chain that `headrace registry` "
        "sends when it connects to a URL.",
    )
    registry_ssl_client_key: FullPath | None = Field(
        default=None,
        description="A PEM file with the client certificate's key; by default the key is read "
        "from the certificate file.",
    )
    registry_ssl_client_key_password: SecretStr | None = Field(
        default=None, description="The password of `registry_ssl_client_key`."
    )
    registry_max_request_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1,
        description="The maximum size of a request to the served schema registry.",
    )
    log_max_bytes: int = Field(
        default=10_000_000,
        ge=1,
        description="The size at which the log, `logs/headrace.log` in `home`, is rotated.",
    )
    log_kept_files: int = Field(
        default=5, ge=1, le=99, description="How many rotated logs are kept."
    )
    metrics_interval: Duration = Field(
        default=timedelta(seconds=15),
        description="How often process memory, the JVM and Spark are sampled for the metrics; "
        "a scrape does not wait for a sample.",
    )
    server: str = Field(
        default="http://127.0.0.1:8083",
        description="The server that `headrace connector` and similar commands connect to.",
    )
    token: SecretStr | None = Field(
        default=None, description="The token for that server, if it requires one."
    )
    token_file: FullPath | None = Field(
        default=None, description="A file that contains only the token."
    )
    server_ca: FullPath | None = Field(
        default=None,
        description="A PEM file with the CA certificates that commands trust for the server; "
        "by default the system's.",
    )
    reporters: Mapping[str, Mapping[str, str]] = Field(
        default_factory=dict,
        description="Reporters that receive the metrics every `metrics_interval`, besides "
        "Prometheus: under a name of your choice, the `type` of a plugin, and its keys. "
        "In the environment "
        "it is a JSON object.",
    )
    alerts: Mapping[str, Mapping[str, str]] = Field(
        default_factory=dict,
        description="Channels for alerts about jobs: under a name of your choice, the `type` "
        "of a plugin, such as log, webhook or email, and its keys, whose values may be "
        "references to secrets. The default is one channel, `log`. In the environment it is a "
        "JSON object.",
    )
    schedule_engines: Mapping[str, Mapping[str, str]] = Field(
        default_factory=dict,
        description="Schedulers that may trigger jobs, for the job key `schedule.engine`: "
        "under a name of your choice, the `type` (airflow or dolphinscheduler), and its keys. "
        "Secrets among the values must be references. In the environment it is a JSON object.",
    )
    progress: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether to show progress; auto: if the output is a terminal.",
    )
    progress_interval: Duration = Field(
        default=timedelta(milliseconds=500), description="How often progress is redrawn."
    )

    @property
    def store_file(self) -> Path:
        """The file of the embedded store, including the schema registry."""
        return self.home / "store.db"

    @property
    def store_place(self) -> Path | str:
        """Where the store is: its file, or the URL of its database."""
        if self.store_url is None:
            return self.store_file
        url = self.store_url.get_secret_value()
        if "connect_timeout=" in url:
            return url
        seconds = math.ceil(self.store_timeout.total_seconds())
        return f"{url}{'&' if '?' in url else '?'}connect_timeout={seconds}"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def log_file(self) -> Path:
        """The log file; it is rotated when it is full."""
        return self.logs / "headrace.log"

    @override
    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, _file.get())


_file: ContextVar[Path | None] = ContextVar("settings file", default=None)
"""The file that is read. In `model_config` it would take a class for each file, and building
one takes longer than reading the settings.
"""


def load_settings(file: Path | None = None, **values: Any) -> Settings:
    """Read the settings once, at the start of a process.

    Args:
        file: A TOML file; by default the file in `HEADRACE_CONFIG`, else `headrace.toml` in
            the current folder if it exists.
        values: Fields that override the environment and the file.

    Raises:
        ConfigError: The file is missing or is not TOML, or a value is not valid.
    """
    path = _settings_file(file)
    reading = _file.set(path)
    try:
        return Settings(**values)
    except ValidationError as error:
        raise _config_error(error) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            field="settings file", problem=f"{path} is not TOML: {error}.", fix="Correct it."
        ) from None
    except SettingsError as error:  # spark_conf in the environment is not JSON
        raise ConfigError(
            field="settings",
            problem=f"{error}.",
            fix=f'Correct the variable, as in {PREFIX}SPARK_CONF=\'{{"spark.a": "b"}}\'.',
        ) from None
    finally:
        _file.reset(reading)


def _settings_file(file: Path | None) -> Path | None:
    named = file or os.environ.get(FILE_VARIABLE)
    if named is None:
        return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
    path = _full_path(Path(named))
    if not path.is_file():
        raise ConfigError(
            field="settings file",
            problem=f"{path} does not exist",
            fix=f"Create it, or correct --config or {FILE_VARIABLE}.",
        )
    return path


def _config_error(error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    known = ", ".join(sorted(Settings.model_fields))
    variable = PREFIX + field.split(".", 1)[0].upper()
    fix = f"Correct {field} in the settings file or {variable} in the environment."
    if first["type"] == "extra_forbidden":
        fix = f"Remove it; the settings are: {known}."
    elif first["type"].startswith("time_delta"):
        fix = f"{fix[:-1]}: write seconds, such as 90, or ISO 8601, such as PT1M30S."
    return ConfigError(field=field, problem=first["msg"], fix=fix)
