"""Values from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import javaproperties
from typing_extensions import override

from headrace.sdk import ConfigError, ConfigProvider, ProviderContext
from headrace.sdk.config import Config, Settings, setting
from headrace.sdk.provider import allowed_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

_ALLOWED = "allowed.paths"


class _FilesSettings(Settings):
    """The settings of ``_Files``."""

    allowed_paths: tuple[str, ...] = setting(
        "The paths at or below which files may be read, with commas between them. "
        "Without any, a server reads what is below `secrets` in its home folder and "
        "/run/secrets, and other commands read what their user may read.",
        default=(),
    )


class _Files(ConfigProvider):
    """Reads files of the folders that it is allowed to."""

    settings: _FilesSettings

    @override
    def __init__(self, config: Config, context: ProviderContext) -> None:
        self._allowed = config.get_list(_ALLOWED)
        self._context = context

    def _file(self, path: str) -> Path:
        return allowed_path(path, self._allowed, self._context)


class FileProvider(_Files):
    """A key of a file in Java's form of properties: `${file:/path/to/file.properties:key}`."""

    aliases = (
        "FileConfigProvider",
        "org.apache.kafka.common.config.provider.FileConfigProvider",
    )

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        file = self._file(path)
        try:
            found = javaproperties.loads(_read(file))
        except javaproperties.InvalidUEscapeError:
            problem = f"{path} holds an escape that Java's form of properties does not have."
            raise ConfigError(problem, fix="Write \\u with four digits.") from None
        return {key: found[key] for key in keys if key in found}


class DirectoryProvider(_Files):
    """A whole file of a folder: `${dir:/path/to/folder:file}`, the form of mounted secrets.

    The line break at the end of a file does not belong to its value.
    """

    aliases = (
        "DirectoryConfigProvider",
        "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    )

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        found = {}
        for key in keys:
            if not key or "/" in key:
                problem = f"{key!r} is no name of a file in {path}."
                raise ConfigError(problem, fix="Write ${dir:/path/to/folder:file}.")
            file = self._file(f"{path}/{key}")
            if file.is_file():
                found[key] = _read(file).removesuffix("\n").removesuffix("\r")
        return found


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}."
        raise ConfigError(problem, fix="Correct the path, or who may read it.") from None
    except UnicodeDecodeError:
        problem = f"{file} is no text."
        raise ConfigError(problem, fix="Write it as UTF-8.") from None
