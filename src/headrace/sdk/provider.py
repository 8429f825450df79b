"""Configuration providers: what references such as ``${env:DB_PASSWORD}`` stand for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headrace.sdk.config import Configured
from headrace.sdk.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from headrace.sdk.config import Config

__all__ = ["ConfigProvider", "ProviderContext", "allowed_path"]


@dataclass(frozen=True, kw_only=True)
class ProviderContext:
    """Where a provider is used.

    Args:
        folders: The folders that are meant for secrets.
        serving: Whether whoever writes configurations may be somebody else than whoever runs
            this process. A provider should then give nothing that was not meant for
            configurations, unless its own keys say so.
        shared: Whether it is sure to be somebody else, as clients have tokens.
    """

    folders: Sequence[Path] = ()
    serving: bool = False
    shared: bool = False


class ConfigProvider(Configured, ABC):
    """Knows the values of references ``${provider:path:key}`` and ``${provider:key}``.

    It is made when a reference to it is first met, and used by any thread. Kafka's interface
    of the name is its model.
    """

    aliases: ClassVar[Sequence[str]] = ()
    version: ClassVar[str] = "1.0.0"

    def __init__(self, config: Config, context: ProviderContext) -> None:
        """Be ready to be asked; nothing is read yet."""
        self.settings = self.settings_class().from_config(config)
        self.context = context

    @abstractmethod
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        """Return the values of keys at a path, those that are there.

        Called each time a configuration is checked or its tasks are planned, so that a value
        that has changed counts from the next start of the tasks on.

        Args:
            path: What stands between the provider and the key; empty if nothing does.
            keys: The keys.

        Raises:
            ConfigError: The path is not there, or may not be read. It must hold no value.
            RetriableError: A system that holds the values does not answer now.
        """


def allowed_path(text: str, allowed: Collection[str], context: ProviderContext) -> Path:
    """Return the path that a reference names, links followed, if it may be read.

    Args:
        text: The path.
        allowed: The paths at or below which files may be read; if none, those that are meant
            for secrets where others write the configurations, and all where nobody else does.
        context: Where the provider is used.

    Raises:
        ConfigError: It may not, or is not absolute.
    """
    if not text or "\0" in text or not Path(text).is_absolute():
        problem = f"{text!r} is no absolute path."
        raise ConfigError(problem, fix="Write the whole path.")
    if not allowed and not context.serving:
        return Path(text).resolve()
    folders = [Path(each) for each in allowed] or list(context.folders)
    path = Path(text).resolve()
    # Both are resolved: a link out of an allowed folder leads out of it.
    if not any(path.is_relative_to(folder.resolve()) for folder in folders):
        shown = ", ".join(str(folder) for folder in folders) or "none"
        problem = f"{text} is not among the paths that references may read."
        fix = f"Put it below one of: {shown}. The provider's allowed.paths names others."
        raise ConfigError(problem, fix=fix)
    return path
