"""Configuration: definitions of keys, validators and parsed values.

`Settings` declares the keys as fields and produces a ConfigDef. This package must not define
keys of a plugin or of the runtime.
"""

from headrace.sdk.config.definition import (
    NO_DEFAULT,
    ConfigDef,
    ConfigInfos,
    ConfigKey,
    ConfigValue,
    Importance,
    Meaning,
    Rule,
    Width,
)
from headrace.sdk.config.settings import Configured, Settings, setting
from headrace.sdk.config.validators import (
    Lambda,
    NonEmptyList,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    NullOr,
    Range,
    Regex,
    Validator,
    ValidList,
    ValidString,
)
from headrace.sdk.config.values import Config, ConfigType, Password, invalid, missing

__all__ = [
    "NO_DEFAULT",
    "Config",
    "ConfigDef",
    "ConfigInfos",
    "ConfigKey",
    "ConfigType",
    "ConfigValue",
    "Configured",
    "Importance",
    "Lambda",
    "Meaning",
    "NonEmptyList",
    "NonEmptyString",
    "NonEmptyStringWithoutControlChars",
    "NonNull",
    "NullOr",
    "Password",
    "Range",
    "Regex",
    "Rule",
    "Settings",
    "ValidList",
    "ValidString",
    "Validator",
    "Width",
    "invalid",
    "missing",
    "setting",
]
