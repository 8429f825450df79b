"""Folders that sinks write to."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path
from urllib.parse import quote

from headrace.sdk.durability import make_folder
from headrace.sdk.errors import ConfigError, SinkError

_WRONG_PATH = {errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
"""What no waiting mends: there can be no folder of this name."""

_NAME_CHARS = 120


def folder_name(text: str) -> str:
    """Return a text as the name of one folder that leads nowhere else; different for each.

    It is the same in a URL, as Delta's logs have the paths of files, and in the paths of
    ``deltalake``, which writes a tilde otherwise and then does not find the file.
    """
    name = quote(text, safe="").replace("~", "%7E").replace(".", "%2E").replace("%", "+")
    if len(name) <= _NAME_CHARS:
        return name
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{name[:_NAME_CHARS]}++{digest}"


def bare_path(text: str) -> str:
    """Return the path that a ``file:`` address stands for; any other text as it is."""
    return "/" + text[5:].lstrip("/") if text[:5].lower() == "file:" else text


def fixed_folder(path: str, placeholder: str) -> Path:
    """Return the folder above the first part of ``path`` that holds ``placeholder``.

    Without one it is the path itself.
    """
    before, found, _ = path.partition(placeholder)
    return Path(before + "x").parent if found else Path(path)


def require_writable(folder: Path) -> None:
    """Create the folder, and try whether it can be written to.

    Raises:
        ConfigError: There can be no folder at this path.
        SinkError: It cannot be written to now: it is full or read-only, say, or the right to
            write there is missing. A task that is started anew later may find it well again.
    """
    try:
        make_folder(folder)
        probe = folder / ".headrace-probe"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raised = ConfigError if error.errno in _WRONG_PATH else SinkError
        raise raised(
            problem=f"{folder} cannot be written to: {error.strerror}.",
            fix="Make room there, give the worker's user the right to write there, or choose "
            "another path.",
            field="path",
        ) from error
