"""The keys that several converters take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.config import (
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigType,
    Importance,
    Range,
    ValidString,
)
from headrace.sdk.converter import CONVERTER_TYPE, RecordPart

if TYPE_CHECKING:
    from headrace.sdk.config import Config

_DECIMALS = "decimal.format"


def converter_def() -> ConfigDef:
    """Return the keys that every converter takes."""
    return ConfigDef().define(
        CONVERTER_TYPE,
        ConfigType.STRING,
        RecordPart.VALUE.value,
        validator=ValidString(*(part.value for part in RecordPart)),
        importance=Importance.LOW,
        doc="Which part it converts; it follows from the key that names the converter.",
    )


def decimals_def() -> ConfigDef:
    """Return the key that says how JSON has decimals; see ``decimals_as_numbers``."""
    return ConfigDef().define(
        _DECIMALS,
        ConfigType.STRING,
        "BASE64",
        validator=CaseInsensitiveValidString("BASE64", "NUMERIC"),
        importance=Importance.LOW,
        doc="How Decimals are written: as BASE64 or NUMERIC. Both are read.",
        group="Serialization",
    )


def decimals_as_numbers(config: Config) -> bool:
    """Return what ``decimals_def`` was given."""
    return config.get_str(_DECIMALS).upper() == "NUMERIC"


def unused_cache_def(
    name: str, *, sake: str, importance: Importance = Importance.LOW
) -> ConfigDef:
    """Return the key of a cache that another system has, and converters here do not need."""
    return ConfigDef().define(
        name,
        ConfigType.INT,
        1000,
        validator=Range(at_least=0),
        importance=importance,
        doc=f"Taken for {sake}'s sake; the schemas of a batch are kept anyway.",
        group="Schemas",
    )
