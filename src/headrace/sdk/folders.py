"""Folders that sinks write to."""

from __future__ import annotations

from pathlib import Path

from headrace.sdk.errors import ConfigError


def fixed_folder(path: str, placeholder: str) -> Path:
    """Return the folder above the first part of ``path`` that holds ``placeholder``.

    Without one it is the path itself.
    """
    before, found, _ = path.partition(placeholder)
    return Path(before + "x").parent if found else Path(path)


def require_writable(folder: Path) -> None:
    """Create the folder, and try whether it can be written to.

    Raises:
        ConfigError: It cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".headrace-probe"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            problem=f"{folder} cannot be written to: {error.strerror}.",
            fix="Choose another path, or give the worker's user the right to write there.",
            field="path",
        ) from error
