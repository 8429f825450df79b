"""The key that every converter takes."""

from __future__ import annotations

from headrace.sdk.config import ConfigDef, ConfigType, Importance, ValidString
from headrace.sdk.converter import CONVERTER_TYPE, RecordPart


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
