"""The settings that several converters take."""

from __future__ import annotations

from typing import Any

from headrace.sdk.config import (
    CaseInsensitiveValidString,
    Importance,
    Range,
    Settings,
    ValidString,
    setting,
)
from headrace.sdk.converter import CONVERTER_TYPE, RecordPart


class ConverterSettings(Settings):
    """For every converter."""

    converter_type: str = setting(
        "Which part it converts; it follows from the key that names the converter.",
        key=CONVERTER_TYPE,
        default=RecordPart.VALUE.value,
        validator=ValidString(*(part.value for part in RecordPart)),
        importance=Importance.LOW,
    )


class DecimalSettings(Settings, group="Serialization"):
    """For converters of JSON."""

    decimal_format: str = setting(
        "How Decimals are written: as BASE64 or NUMERIC. Both are read.",
        default="BASE64",
        validator=CaseInsensitiveValidString("BASE64", "NUMERIC"),
        importance=Importance.LOW,
    )

    @property
    def decimals_as_numbers(self) -> bool:
        """Whether Decimals become numbers, and not base64."""
        return self.decimal_format.upper() == "NUMERIC"


def unused_cache(sake: str, importance: Importance = Importance.LOW) -> Any:
    """Declare the size of a cache that another system has, and converters here do not need."""
    return setting(
        f"Taken for {sake}'s sake; the schemas of a batch are kept anyway.",
        default=1000,
        validator=Range(at_least=0),
        importance=importance,
        group="Schemas",
    )
