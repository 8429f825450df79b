"""Access rules for configurations on the machine that runs them: paths, code and drivers."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+(?=:)")
_LOCAL = {"file", "har", "jar", "local", "viewfs", "zip"}
"""Schemes that refer, or may refer, to this machine's disk."""
_GLOB = re.compile(r"[*?\[{\\]")
_TRIMMED = "".join(map(chr, range(1, 0x21)))
"""The characters that configurations trim: other blanks may start a relative path."""
_TOPIC = "${topic}"
"""The placeholder that sinks replace with a topic's name, which contains no slash."""
_CUTS = re.compile(r"[?#\x00-\x1f\x7f]")
"""Characters that end a URL's path for some readers, but not for others."""


@dataclass(frozen=True)
class Access:
    """What configurations may use on the machine. Thread-safe.

    Args:
        paths: The allowed folders and files, with everything below them; None for any path.
        code: Whether configurations may contain or name Python code.
        drivers: The allowed JDBC drivers, see the setting ``allowed_drivers``; None for any.
        classes: Classes that the settings name, which may be imported in any case.
    """

    paths: Sequence[Path] | None = None
    code: bool = True
    drivers: Sequence[str] | None = None
    classes: frozenset[str] = frozenset()

    def check_path(self, text: str, field: str) -> None:
        """Raise ConfigError if a path is not allowed; links and ``..`` are resolved.

        For a glob, the folder before the first wildcard is checked. Paths on other systems,
        such as ``s3a://bucket/x``, are allowed.
        """
        text = text.strip(_TRIMMED)
        if self.paths is None or not text:
            return
        paths = [path.replace(_TOPIC, "x") for path in _local_paths(text)]
        for path in paths:
            folder, rest = _literal(path)
            if "${" in path or _climbs(rest) or not self._holds(folder):
                raise self._refused(text, field)

    def check_file(self, path: str) -> None:
        """Raise ConfigError if a file that data (such as a table's log) name is not allowed.

        Unlike a path in a configuration, its name is literal, without wildcards.
        """
        # Some readers resolve .. lexically, others follow a link before it first.
        ways = (path, os.path.normpath(path))
        if self.paths is not None and not all(self._holds(way) for way in ways):
            raise self._refused(path)

    def check_code(self, field: str) -> None:
        """Raise ConfigError if configurations may not contain Python code."""
        if not self.code:
            problem = "Configurations may not run Python on this server."
            fix = "Set allow_python_code in the server's settings, or use another transform."
            raise ConfigError(problem, field=field, fix=fix)

    def check_driver(self, text: str, field: str) -> None:
        """Raise ConfigError if a JDBC driver (coordinates, or a jar's path) is not allowed."""
        text = text.strip(_TRIMMED)
        if self.drivers is None or not text:
            return
        if text.startswith("/"):
            allowed = [Path(each) for each in self.drivers if each.startswith("/")]
            fits = _lies_below(text, allowed)
        else:
            fits = any(fnmatchcase(text, pattern) for pattern in self.drivers)
        if not fits:
            problem = f"{text} is not among the JDBC drivers that configurations may use."
            shown = ", ".join(self.drivers) or "none"
            fix = f"Use one of: {shown}. The setting allowed_drivers can allow others."
            raise ConfigError(problem, field=field, fix=fix)

    def _holds(self, folder: str) -> bool:
        return _lies_below(folder, self.paths or ())

    def _refused(self, text: str, field: str | None = None) -> ConfigError:
        shown = ", ".join(map(str, self.paths or ())) or "none"
        problem = f"{text} is not among the paths that configurations may use."
        fix = f"Use a path below one of: {shown}. The setting allowed_paths can allow others."
        return ConfigError(problem, field=field, fix=fix)


def _lies_below(path: str, allowed: Sequence[Path]) -> bool:
    try:
        # Both are resolved: a link in an allowed folder may lead out of the folder.
        # Some readers expand ~, others treat it as a name.
        paths = {Path(path).resolve(), Path(path).expanduser().resolve()}
        folders = [each.resolve() for each in allowed]
        return all(any(each.is_relative_to(a) for a in folders) for each in paths)
    except (OSError, RuntimeError, ValueError):  # a link loop, a null byte, or ~nobody
        return False


def _local_paths(text: str) -> list[str]:
    """Return the paths on this machine that a text may refer to; empty for another system."""
    scheme = _SCHEME.match(text)
    if scheme is None or "/" in scheme[0]:
        return [text]
    if scheme[0].lower() != "file":
        elsewhere = text[scheme.end() :].startswith("://") and "/.." not in text
        if scheme[0].lower() in _LOCAL or not elsewhere:
            return [text, "/"]  # only the file system knows which parts are paths
        return []
    path = "/" + text[5:].lstrip("/")
    has_host = re.match("//[^/]", text[scheme.end() + 1 :]) is not None
    unclear = has_host or _CUTS.search(text) is not None
    # Some readers decode percent-escapes, others do not.
    return [path, unquote(path), *(["/"] if unclear else [])]


def _literal(path: str) -> tuple[str, str]:
    """Return the folder before a path's first wildcard, and the rest from the wildcard on."""
    wild = _GLOB.search(path)
    if wild is None:
        return path, ""
    folder, _, _ = path[: wild.start()].rpartition("/")
    if not folder and path.startswith("/"):
        folder = "/"
    return folder or ".", path[wild.start() :]


def _climbs(rest: str) -> bool:
    """Return whether the rest from a wildcard on may lead out of the folder before it."""
    in_braces = any("/" in part for part in re.findall(r"\{[^}]*\}?", rest))
    return in_braces or "\\" in rest or ".." in rest
