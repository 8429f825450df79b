"""Settings are declared once, and become keys and values."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import pytest

from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.config import (
    ConfigType,
    Configured,
    Importance,
    NonEmptyString,
    Password,
    Range,
    Settings,
    setting,
)


class Mode(Enum):
    APPEND = "append"
    REPLACE = "replace"


def _no_secret(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if "password" not in props and "user" in props:
        yield ConfigError("A user needs a password.", field="password")


class Login(Settings, group="Login"):
    user: str | None = setting("Who logs in.", default=None)
    password: Password | None = setting("With what.", default=None)

    rules = (_no_secret,)


class TableSettings(Login, group="Table"):
    database: str = setting("The file.", importance=Importance.HIGH)
    batch_rows: int = setting("Rows of a batch.", default=10, validator=Range(at_least=1))
    bytes_at_most: int = setting("Bytes.", default=2**40, key="max.bytes", type=ConfigType.LONG)
    ratio: float = setting("A share.", default=0.5)
    columns: tuple[str, ...] = setting("Which columns.", default=())
    strict: bool = setting("Whether.", default=False, group="More")
    mode: Mode = setting("How.", default=Mode.APPEND)


class Table(Configured):
    settings: TableSettings


class Narrower(Table):
    """A plugin that takes what its base takes."""


def parsed(**props: str) -> TableSettings:
    config = TableSettings.config_def().parse({"database": "d", **props})
    return TableSettings.from_config(config)


def test_values_are_attributes_and_defaults_are_filled_in() -> None:
    assert parsed() == TableSettings(database="d")
    assert parsed(**{"batch.rows": "5", "max.bytes": "7", "columns": "a,b"}) == TableSettings(
        database="d", batch_rows=5, bytes_at_most=7, columns=("a", "b")
    )


def test_an_enum_takes_its_texts_and_gives_its_members() -> None:
    assert parsed(mode="replace").mode is Mode.REPLACE
    with pytest.raises(ConfigErrors) as caught:
        parsed(mode="merge")
    assert "append, replace" in str(caught.value)


def test_keys_have_the_types_of_their_fields_and_places_in_their_groups() -> None:
    keys = TableSettings.config_def().keys
    assert [key.name for key in keys.values()] == [
        *("database", "batch.rows", "max.bytes", "ratio", "columns", "strict", "mode"),
        *("user", "password"),  # those of the base come last
    ]
    assert [key.type for key in keys.values()] == [
        *(ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE),
        *(ConfigType.LIST, ConfigType.BOOLEAN, ConfigType.STRING),
        *(ConfigType.STRING, ConfigType.PASSWORD),
    ]
    assert [(key.group, key.order) for key in keys.values()] == [
        *(("Table", place) for place in range(1, 6)),
        *(("More", 1), ("Table", 6), ("Login", 1), ("Login", 2)),
    ]
    assert keys["database"].required
    assert keys["database"].importance is Importance.HIGH
    assert not keys["user"].required


def test_rules_of_a_base_hold() -> None:
    with pytest.raises(ConfigErrors, match="needs a password"):
        parsed(user="me")


def test_a_secret_does_not_show() -> None:
    settings = parsed(user="me", password="hush")  # noqa: S106 - what is tested
    assert "hush" not in repr(settings)
    assert settings.password == Password("hush")


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        parsed().database = "other"  # type: ignore[misc]  # what is tested


def test_a_plugin_takes_the_settings_that_it_or_its_base_declares() -> None:
    assert Table.config_def() == Narrower.config_def() == TableSettings.config_def()
    assert Configured.config_def().keys == {}


def test_a_type_that_no_setting_can_have_is_refused() -> None:
    class Odd(Settings):
        when: complex = setting("A number of another kind.", validator=NonEmptyString())

    with pytest.raises(TypeError, match=r"Odd\.when"):
        Odd.config_def()
