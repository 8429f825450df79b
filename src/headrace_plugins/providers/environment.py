"""Values from the environment of the process."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, ConfigProvider, ProviderContext
from headrace.sdk.config import (
    Config,
    NullOr,
    Regex,
    Settings,
    setting,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_PATTERN = "allowlist.pattern"
_OWN = ("HEADRACE_", "PGPASS", "AWS_", "AZURE_", "GOOGLE_", "VAULT_", "GITHUB_", "SSH_")
"""What begins so is meant for the process itself, such as the store's password."""
_MEANT = "CONNECT_"
"""What begins so is meant for configurations, also where others write them."""


class EnvironmentProviderSettings(Settings):
    """The settings of ``EnvironmentProvider``."""

    allowlist_pattern: str | None = setting(
        "A regular expression for the whole names of the variables that may be read. "
        "Without one, a server that asks for tokens, or that others can reach, reads "
        f"those that begin with {_MEANT}; other servers all but those that begin with "
        f"{', '.join(_OWN)}; other commands all but those that begin with {_OWN[0]}.",
        default=None,
        validator=NullOr(Regex()),
    )


class EnvironmentProvider(ConfigProvider):
    """A variable of the environment: `${env:NAME}`."""

    aliases = (
        "EnvVarConfigProvider",
        "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    )

    settings: EnvironmentProviderSettings

    @override
    def __init__(self, config: Config, context: ProviderContext) -> None:
        self._pattern = config.find_str(_PATTERN)
        self._context = context

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if path:
            problem = f"Variables of the environment have no path, as {path!r} would be."
            raise ConfigError(problem, fix="Write ${env:NAME}.")
        for key in keys:
            if not self._may_read(key):
                problem = f"{key} is not among the variables that references may read."
                fix = (
                    f"Name it {_MEANT}..., or allow it: the key {_PATTERN} of the setting "
                    "config_providers.env says which are read."
                )
                raise ConfigError(problem, fix=fix)
        there = os.environ  # noqa: TID251 - it is what this provider is for
        return {key: there[key] for key in keys if key in there}

    def _may_read(self, key: str) -> bool:
        if self._pattern is not None:
            return re.fullmatch(self._pattern, key) is not None
        if self._context.shared:
            return key.startswith(_MEANT)
        return not key.startswith(_OWN if self._context.serving else _OWN[0])
