"""Configuration: what keys there are, what values they take, and the values given."""

from headrace.sdk.config.definition import NO_DEFAULT, ConfigDef, Rule
from headrace.sdk.config.evolution_keys import evolution_config
from headrace.sdk.config.infos import ConfigInfos, ConfigValue
from headrace.sdk.config.key import ConfigKey, Importance, Meaning, Recommender, Width
from headrace.sdk.config.parsing import ConfigType, invalid, missing
from headrace.sdk.config.settings import Configured, Settings, setting
from headrace.sdk.config.validators import (
    CaseInsensitiveValidString,
    Composite,
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
from headrace.sdk.config.values import Config, Password

__all__ = [
    "NO_DEFAULT",
    "CaseInsensitiveValidString",
    "Composite",
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
    "Recommender",
    "Regex",
    "Rule",
    "Settings",
    "ValidList",
    "ValidString",
    "Validator",
    "Width",
    "evolution_config",
    "invalid",
    "missing",
    "setting",
]
