"""``headrace plugins new``: the package of a new plugin, with its tests."""

from __future__ import annotations

import keyword
import re
from enum import StrEnum
from importlib.resources import files
from importlib.util import find_spec
from string import Template
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


class Kind(StrEnum):
    """The kind of plugin in a new package."""

    SOURCE = "source"
    CAPTURE = "capture"
    SINK = "sink"
    RECORD_SINK = "record-sink"
    TRANSFORM = "transform"
    PREDICATE = "predicate"

    @property
    def group(self) -> str:
        """The entry-point group of the plugin."""
        found = {Kind.CAPTURE: Kind.SOURCE, Kind.RECORD_SINK: Kind.SINK}.get(self, self)
        return f"{found}s"


def write_package(kind: Kind, name: str, folder: Path) -> list[Path]:
    """Write a package into a new folder and return its files.

    Raises:
        ConfigError: The name is not valid for a package or shadows a module, or the folder
            exists.
    """
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(package):
        problem = f"Invalid name {name!r} for a package."
        fix = "Use lower-case letters, digits and hyphens, such as acme-events."
        raise ConfigError(problem, field="NAME", fix=fix)
    if find_spec(package) is not None:
        problem = f"The package would hide the existing module {package}."
        fix = "Choose another name, such as one that begins with your company's name."
        raise ConfigError(problem, field="NAME", fix=fix)
    if folder.exists():
        problem = f"{folder} already exists."
        fix = "Remove it, or choose another with --folder."
        raise ConfigError(problem, field="--folder", fix=fix)
    names = {
        "name": name,
        "package": package,
        "Class": "".join(part.capitalize() for part in name.split("-")),
        "kind": kind.value,
        "group": kind.group,
    }
    texts = {
        folder / "pyproject.toml": "pyproject.toml",
        folder / "README.md": "README.md",
        folder / package / "__init__.py": f"{kind}.py",
        folder / f"test_{package}.py": f"test_{kind}.py",
    }
    for path, template in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (files(__package__) / "templates" / f"{template}.txt").read_text()
        path.write_text(Template(text).substitute(names))
    return list(texts)
