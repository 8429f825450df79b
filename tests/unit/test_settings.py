"""Where settings come from, which wins, and how a bad one is told."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.sdk.errors import ConfigError
from headrace.sdk.location import Location
from headrace.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without settings, in a folder without a settings file."""
    for name in ("HEADRACE_HOME", "HEADRACE_CACHE", "JAVA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def test_without_file_and_environment_the_defaults_hold() -> None:
    settings = load_settings()
    assert settings.home == Path.home() / ".headrace"
    assert settings.cache == Path.home() / ".cache" / "headrace"
    assert settings.topics_dir == Location.of(settings.home / "topics")
    assert (settings.master, settings.driver_memory) == ("local[*]", "1g")
    assert settings.lease == timedelta(seconds=30)


def test_the_caller_wins_over_the_environment_which_wins_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "my.toml",
        'master = "local[1]"\nworker_threads = 1\ndriver_memory = "2g"\n',
    )
    monkeypatch.setenv("HEADRACE_MASTER", "local[2]")
    monkeypatch.setenv("HEADRACE_WORKER_THREADS", "2")
    settings = load_settings(file, worker_threads=3)
    assert (settings.driver_memory, settings.master) == ("2g", "local[2]")
    assert settings.worker_threads == 3


def test_the_file_in_the_current_folder_is_read(tmp_path: Path) -> None:
    write(tmp_path / "headrace.toml", 'lease = "PT5S"\n[spark_conf]\n"spark.a" = "b"\n')
    settings = load_settings()
    assert settings.lease == timedelta(seconds=5)
    assert settings.spark_conf == {"spark.a": "b"}


def test_each_setting_of_one_value_can_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = load_settings(home=tmp_path).model_dump(mode="json")
    plain = {name: value for name, value in values.items() if isinstance(value, str | int)}
    assert {"home", "topics_dir", "lease", "master"} <= plain.keys()
    for name, value in plain.items():
        monkeypatch.setenv(f"HEADRACE_{name.upper()}", str(value))
    assert load_settings().model_dump(mode="json") == values


def test_the_environment_can_name_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path / "headrace.toml", "worker_threads = 1\n")
    monkeypatch.setenv(
        "HEADRACE_CONFIG", str(write(tmp_path / "b.toml", "worker_threads = 9\n"))
    )
    assert load_settings().worker_threads == 9


def test_topics_live_in_the_home_unless_told_otherwise(tmp_path: Path) -> None:
    assert load_settings(home=tmp_path).topics_dir == Location.of(tmp_path / "topics")
    assert load_settings(home=tmp_path, topics_dir="/data").topics_dir == Location.of("/data")


def test_a_tilde_is_the_users_home() -> None:
    assert load_settings(home="~/data").home == Path.home() / "data"


def test_the_cache_follows_the_desktop_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    assert load_settings().cache == Path("/var/caches/headrace")


def test_spark_settings_in_the_environment_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SPARK_CONF", '{"spark.sql.ansi.enabled": "false"}')
    assert load_settings().spark_conf == {"spark.sql.ansi.enabled": "false"}


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        load_settings().worker_threads = 5


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"worker_threads": 0}, "worker_threads"),
        ({"driver_memory": "much"}, "driver_memory"),
        ({"lease": -1}, "lease"),
        ({"progress": "maybe"}, "progress"),
    ],
)
def test_a_bad_value_is_told_with_its_field(values: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(**values)
    assert raised.value.field == field
    assert f"HEADRACE_{field.upper()}" in raised.value.fix


def test_an_unknown_setting_is_told_with_the_known_ones(tmp_path: Path) -> None:
    file = write(tmp_path / "my.toml", "worker_treads = 4\n")
    with pytest.raises(ConfigError) as raised:
        load_settings(file)
    assert raised.value.field == "worker_treads"
    assert "worker_threads" in raised.value.fix


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings(tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["worker_threads = ", "= 1"])
def test_a_file_that_is_not_toml_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="is not TOML"):
        load_settings(write(tmp_path / "my.toml", text))


def test_spark_settings_that_are_not_json_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SPARK_CONF", "spark.a=b")
    with pytest.raises(ConfigError, match="spark_conf"):
        load_settings()


def test_loaded_settings_are_plain_settings() -> None:
    assert type(load_settings()) is Settings


@pytest.mark.parametrize("text", ["6", "6.0", "6 s", "PT6S", "00:00:06"])
def test_a_duration_is_seconds_or_what_iso_8601_has(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HEADRACE_LEASE", text)
    assert load_settings().lease == timedelta(seconds=6)


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf"])
def test_what_is_no_duration_is_refused_with_its_field(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HEADRACE_LEASE", text)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert caught.value.field is not None
    assert "lease" in caught.value.field.lower()


def test_the_forms_of_a_duration_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_JAVA_IDLE", "3m")
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert "seconds, such as 90, or ISO 8601, such as PT1M30S" in caught.value.fix
