"""Folders that sinks write to."""

from __future__ import annotations

import errno
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from headrace.sdk.errors import ConfigError, SinkError

if TYPE_CHECKING:
    from headrace.sdk.location import Location

_WRONG_PATH = {errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
"""Errors that do not pass: there can be no folder of this name."""

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


def fixed_folder(place: Location, placeholder: str) -> Location:
    """Return the folder above the first part of a path that holds ``placeholder``.

    Without one it is the place itself.
    """
    before, found, _ = place.path.partition(placeholder)
    return replace(place, path=before + "x").parent if found else place


def require_writable(folder: Location) -> None:
    """Create the folder, and try whether it can be written to.

    Raises ConfigError: there can be no folder at this path. Raises SinkError: it cannot be
    written to now: it is full or read-only, say, or the right to write there is missing. A task
    that is started again later may find it repaired.
    """
    try:
        folder.make_folder()
        probe = folder / ".headrace-probe"
        probe.put("")
        probe.delete()
    except OSError as error:
        raised = ConfigError if error.errno in _WRONG_PATH else SinkError
        raise raised(
            problem=f"{folder} cannot be written to: {error.strerror}.",
            fix="Make room there, give the worker's user the right to write there, or choose "
            "another path.",
            field="path",
        ) from error
