"""Values from the environment of the process."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, ConfigProvider, ProviderContext
from headrace.sdk.config import Config, ConfigDef, ConfigType, NullOr, Regex

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_PATTERN = "allowlist.pattern"
_OWN = "HEADRACE_"
"""What begins so is a setting of the process itself, such as the store's password."""


class EnvironmentProvider(ConfigProvider):
    """A variable of the environment: `${env:NAME}`."""

    aliases = (
        "EnvVarConfigProvider",
        "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    )

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define(
            _PATTERN,
            ConfigType.STRING,
            None,
            validator=NullOr(Regex()),
            doc="A regular expression for the whole names of the variables that may be read; "
            "without one, all but those that begin with HEADRACE_.",
        )

    @override
    def __init__(self, config: Config, context: ProviderContext) -> None:
        self._pattern = config.find_str(_PATTERN)

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if path:
            problem = f"Variables of the environment have no path, as {path!r} would be."
            raise ConfigError(problem, fix="Write ${env:NAME}.")
        for key in keys:
            if not self._may_read(key):
                problem = f"{key} is not among the variables that references may read."
                fix = f"The provider's {_PATTERN} says which are."
                raise ConfigError(problem, fix=fix)
        there = os.environ  # noqa: TID251 - it is what this provider is for
        return {key: there[key] for key in keys if key in there}

    def _may_read(self, key: str) -> bool:
        if self._pattern is None:
            return not key.startswith(_OWN)
        return re.fullmatch(self._pattern, key) is not None
