"""The settings of one process, read once from a file and the environment."""

import math
import os
import tomllib
from collections.abc import Mapping
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
    """Read a text such as ``30``, ``0.5 s`` or ``30 s`` as seconds; pydantic reads the rest."""
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
    NoDecode,  # a variable has its text, and not JSON
]
Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta(0))]
DurationOrZero = Annotated[timedelta, BeforeValidator(_duration), Field(ge=timedelta(0))]


class Settings(BaseSettings):
    """What a process needs to know before it starts; frozen.

    A value comes from the caller, else from the variable `HEADRACE_<FIELD>`, else from the
    file, else from the default. Durations are seconds or ISO 8601 (`PT30S`); `spark_conf` and
    `config_providers` in the environment are JSON objects. Build it with `load_settings`,
    which reports a bad value as a `ConfigError` that names the field.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", validate_default=True
    )

    home: FullPath = Field(
        default=Path("~/.headrace"), description="State: store, topics, logs."
    )
    cache: FullPath = Field(
        default_factory=_cache_home,
        description="What set-up can make again: Spark's jars and the class archive.",
    )
    store_url: SecretStr | None = Field(
        default=None,
        description="A PostgreSQL database for the store, as postgresql://user@host/database, "
        "where several machines share it; else it is a file in `home`. It may hold a password, "
        "which is shown nowhere.",
    )
    store_timeout: Duration = Field(
        default=timedelta(seconds=5),
        description="How long the PostgreSQL server of the store may take for a connection, a "
        "lock or a statement, in whole seconds, unless `connect_timeout` in `store_url` says "
        "so; one that is silent for 2 seconds more is given up until it answers again.",
    )
    topics_dir: FullLocation = Field(
        default_factory=lambda data: Location.of(data.get("home", Path()) / "topics"),
        description="Where topics are kept: a path or a `file:///` URL.",
    )
    java_home: FullPath | None = Field(
        default_factory=_java_home, description="A Java 17 or 21; else one is looked for."
    )
    java_idle: DurationOrZero | None = Field(
        default=None,
        description="How long Spark's JVM waits for the next command when a short one ends "
        "(`run --once`, `preview`, `dlq replay` and the like, with a local master, on Linux): "
        "one with the same settings, variables and folder has Spark at once then. "
        "0: it ends with its command. Without it, 300 at a terminal, else 0.",
    )
    durability: Durability = Field(
        default=Durability.FSYNC,
        description="`fsync`: a position moves only once what it covers is on disk, so that it "
        "survives a loss of power; `os`: the operating system writes it when it likes, which "
        "survives a crash of Headrace, and not one of the machine.",
    )
    master: str = Field(default="local[*]", description="Spark's master.")
    driver_memory: str = Field(
        default="1g", pattern=r"^[0-9]+[kmgKMG]$", description="Heap of Spark's driver."
    )
    spark_conf: Mapping[str, str] = Field(
        default_factory=dict, description="Spark settings; each wins over ours."
    )
    spark_failures_max: int = Field(
        default=3,
        ge=1,
        description="How often Spark's JVM may end within `spark_failures_window`: then the "
        "process ends, with exit code 4; before, Spark is started again.",
    )
    spark_failures_window: Duration = Field(
        default=timedelta(minutes=5), description="The time in which these are counted."
    )
    spark_stalled_after: Duration = Field(
        default=timedelta(minutes=10),
        description="After how long without progress of its Spark job a task is shown and "
        "logged as stalled.",
    )
    spark_stalled_cancel: bool = Field(
        default=False, description="Whether such a job is cancelled and tried again."
    )
    health_free_bytes: int = Field(
        default=100 * 1024 * 1024,
        ge=0,
        description="With less free space than this where `home` or the topics are, a server "
        "reports the state degraded.",
    )
    worker_threads: int = Field(
        default=4, ge=1, description="How many tasks of a worker move data at the same time."
    )
    job_runs: int = Field(
        default=4, ge=1, description="How many runs of offline jobs go on at the same time."
    )
    job_approvers: tuple[str, ...] = Field(
        default=(),
        description="Names of tokens that may approve any job. Where one is named, every job "
        "needs an approval; else only jobs that name approvers of their own.",
    )
    lease: Duration = Field(
        default=timedelta(seconds=30),
        description="How long a task stays assigned to a worker that sends no heartbeat.",
    )
    server_tokens: FullPath = Field(
        default_factory=lambda data: data.get("home", Path()) / "tokens.json",
        description="The tokens of the clients of `headrace server`, which `headrace token` "
        "writes; if the file exists, requests without a token are rejected.",
    )
    server_ssl_certificate: FullPath | None = Field(
        default=None,
        description="A PEM file of the certificate with which `headrace server` speaks TLS, "
        "and of those that lead to its root; without it, it speaks plain HTTP.",
    )
    server_ssl_key: FullPath | None = Field(
        default=None, description="A PEM file of its key; else in the certificate's file."
    )
    server_ssl_key_password: SecretStr | None = Field(
        default=None, description="The key's password."
    )
    server_ssl_client_ca: FullPath | None = Field(
        default=None,
        description="A PEM file of the certificates that sign those of the server's clients; "
        "clients then need a certificate.",
    )
    server_max_request_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1,
        description="How large a request to the server may be.",
    )
    server_requests_per_minute: int = Field(
        default=30_000,
        ge=1,
        description="How many requests an address may send to the server in a minute.",
    )
    task_shutdown_graceful_timeout: Duration = Field(
        default=timedelta(seconds=5),
        description="How long a task that is to end may finish what it moves; then it is "
        "cancelled, and after the same time again its lease is revoked.",
    )
    connector_timeout: Duration = Field(
        default=timedelta(minutes=1),
        description="How long a connector may take to check its configuration, to start and to "
        "plan its tasks; one that hangs fails alone.",
    )
    restart_failed: bool = Field(
        default=False,
        description="Whether `headrace server` restarts failed tasks and connectors "
        "automatically; `errors.restart.enable` sets it for one connector. Failures that "
        "need a fix first, such as an invalid configuration, are not restarted.",
    )
    restart_delay: Duration = Field(
        default=timedelta(seconds=5),
        description="The wait before the first restart; it doubles with each further one, and "
        "is reduced at random by up to half.",
    )
    restart_delay_max: Duration = Field(
        default=timedelta(minutes=5), description="The longest wait before a restart."
    )
    restart_attempts: int = Field(
        default=10,
        ge=-1,
        description="After how many consecutive restarts a task stays failed; -1 for never.",
    )
    restart_quiet: Duration = Field(
        default=timedelta(minutes=10),
        description="How long a task must run until its restarts are counted from the first.",
    )
    history_age: Duration = Field(
        default=timedelta(days=7),
        description="How long past states of connectors and tasks are kept.",
    )
    history_count: int = Field(
        default=1000,
        ge=1,
        description="How many of these, the newest, of each connector and each task.",
    )
    audit_age: Duration = Field(
        default=timedelta(days=365),
        description="How long changes by callers are kept; never shorter than states.",
    )
    store_backups_kept: int = Field(
        default=10,
        ge=0,
        description="How many backups of the store, the newest, are kept in `home`; 0 for all.",
    )
    config_providers: Mapping[str, Mapping[str, str]] = Field(
        default_factory=dict,
        description="Keys of the configuration providers, by the name that references have, "
        "which stands for a provider of that name unless the key `class` names another.",
    )
    allowed_paths: tuple[FullPath, ...] | None = Field(
        default=None,
        description="The folders and files at or below which configurations that a server is "
        "sent may read and write. Without it, any path where the server listens on this "
        "machine only and asks for no tokens, else what is below `data` in `home`.",
    )
    allow_python_code: bool | None = Field(
        default=None,
        description="Whether configurations that a server is sent may run Python: the "
        "transform `Python`, and classes by their path that are not installed plugins. Without "
        "it, only where the server listens on this machine only and asks for no tokens.",
    )
    allowed_drivers: tuple[str, ...] | None = Field(
        default=None,
        description="The JDBC drivers that configurations that a server is sent may name: "
        "patterns of Maven coordinates, such as `org.postgresql:postgresql:*`, and jars, or "
        "folders of jars, whose paths begin with `/`. Without it, any where the server listens "
        "on this machine only and asks for no tokens, else none.",
    )
    registry_token: SecretStr | None = Field(
        default=None,
        description="What clients of the schema registry must show; without it, "
        "`headrace registry serve` listens on this machine only.",
    )
    registry_ssl_certificate: FullPath | None = Field(
        default=None,
        description="A PEM file of the certificate with which `headrace registry serve` speaks "
        "TLS, and of those that lead to its root; without it, it speaks plain HTTP.",
    )
    registry_ssl_key: FullPath | None = Field(
        default=None, description="A PEM file of its key; else in the certificate's file."
    )
    registry_ssl_key_password: SecretStr | None = Field(
        default=None, description="The key's password."
    )
    registry_ssl_client_ca: FullPath | None = Field(
        default=None,
        description="A PEM file of the certificates that sign those of the registry's "
        "clients; clients then need a certificate.",
    )
    registry_ssl_ca: FullPath | None = Field(
        default=None,
        description="A PEM file of the certificates that `headrace registry` trusts when it "
        "connects to a URL; else the system's.",
    )
    registry_ssl_client_certificate: FullPath | None = Field(
        default=None,
        description="A PEM file of the certificate that `headrace registry` shows to a "
        "registry at a URL, and of those that lead to its root.",
    )
    registry_ssl_client_key: FullPath | None = Field(
        default=None, description="A PEM file of its key; else in the certificate's file."
    )
    registry_ssl_client_key_password: SecretStr | None = Field(
        default=None, description="The password of that key."
    )
    registry_max_request_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1,
        description="How large a request to the served schema registry may be.",
    )
    log_max_bytes: int = Field(
        default=10_000_000,
        ge=1,
        description="The size at which the log, `logs/headrace.log` in `home`, is put aside "
        "and a new one begun.",
    )
    log_kept_files: int = Field(
        default=5, ge=1, le=99, description="How many logs that were put aside are kept."
    )
    metrics_interval: Duration = Field(
        default=timedelta(seconds=15),
        description="How often the memory of processes, the JVM and Spark are looked at for "
        "the metrics; a scrape does not wait for them.",
    )
    server: str = Field(
        default="http://127.0.0.1:8083",
        description="The server that `headrace connector` and the like speak to.",
    )
    token: SecretStr | None = Field(
        default=None, description="What that server is shown, where it requires a token."
    )
    token_file: FullPath | None = Field(
        default=None, description="A file that holds it, and nothing else."
    )
    server_ca: FullPath | None = Field(
        default=None,
        description="A PEM file of certificates that may sign the server's; else the system's.",
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
        description="Channels that alerts about jobs are sent by: under a name of your choice, "
        "the `type` of a plugin, such as log, webhook or email, and its keys, whose values may "
        "be references to secrets. Without any it is one, `log`. In the environment it is a "
        "JSON object.",
    )
    schedule_engines: Mapping[str, Mapping[str, str]] = Field(
        default_factory=dict,
        description="Schedulers that may wake jobs, whose key `schedule.engine` names one: "
        "under a name of your choice, the `type` (airflow or dolphinscheduler), and its keys. "
        "What is secret among them has to be a reference. In the environment it is a JSON "
        "object.",
    )
    progress: Literal["auto", "always", "never"] = Field(
        default="auto", description="Progress on the terminal; auto: when there is one."
    )
    progress_interval: Duration = Field(
        default=timedelta(milliseconds=500), description="How often progress is drawn."
    )

    @property
    def store_file(self) -> Path:
        """The file of the embedded store, the schema registry included."""
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
        """The file of the log; when it is full it is renamed, and a new one begun."""
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
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(file: Path | None = None, **values: Any) -> Settings:
    """Read the settings once, at the start of a process.

    Args:
        file: A TOML file; without one, the file that `HEADRACE_CONFIG` names, else
            `headrace.toml` in the current folder if it is there.
        values: Fields that win over the environment and the file.

    Raises:
        ConfigError: The file is missing or is not TOML, or a value does not fit its field.
    """
    path = _settings_file(file)

    class FromFile(Settings):
        """Settings that also look into the file."""

        model_config = SettingsConfigDict(toml_file=path)

    try:
        found = FromFile(**values)
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
    return Settings.model_construct(**dict(found))


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
    return ConfigError(field=field, problem=first["msg"], fix=fix)
