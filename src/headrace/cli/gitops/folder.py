"""Connectors as files would describe them: those of a folder, and those of a server."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ruamel.yaml import YAML

from headrace.cli.gitops.plan import There
from headrace.control import Served
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.client import Client


SUFFIXES = {".json", ".properties", ".yaml", ".yml"}
_FIRST = ("connector.class", "tasks.max", "topic", "topics")
"""The keys that come first in a file; the others follow by name."""


def files_below(places: Sequence[Path]) -> list[Path]:
    """Return the files that folders hold, at any depth, and the files that are named.

    What begins with a dot is left out, as are files that describe nothing by their names.
    Raises ConfigError for a place that is not there.
    """
    found: list[Path] = []
    for place in places:
        if not place.exists() and str(place) != "-":
            problem = f"{place} does not exist."
            raise ConfigError(
                problem, field="DIR", fix="Check the path, or export to it first."
            )
        if not place.is_dir():
            found.append(place)
            continue
        for file in sorted(place.rglob("*")):
            hidden = any(part.startswith(".") for part in file.relative_to(place).parts)
            if file.suffix.lower() in SUFFIXES and file.is_file() and not hidden:
                found.append(file)
    return list(dict.fromkeys(found))


def file_name(name: str) -> str:
    """Return the name of the file of a connector, which no name leads out of its folder."""
    text = quote(name, safe=" @+,=")
    # A leading dot would hide the file, and two be a folder.
    return f"%2E{text[1:]}.yaml" if text.startswith(".") else f"{text}.yaml"


def yaml_text(described: Served) -> str:
    """Return a connector as a file describes it; read again it is the same, text by text."""
    keys = [key for key in _FIRST if key in described.config]
    keys += sorted(described.config.keys() - {*keys, "name"})
    document: dict[str, object] = {"name": described.name}
    if described.state is not None:
        document["state"] = described.state.lower()
    document["config"] = {key: described.config[key] for key in keys}
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 10_000  # a long value stays on its line, where a diff shows it
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def there_on(client: Client) -> dict[str, There]:
    """Return what a server has, by name."""
    targets = client.targets()
    return {
        name: There(dict(info.config), targets[name])
        for name, info in client.infos().items()
        if name in targets
    }


def described_on(client: Client) -> dict[str, Served]:
    """Return the same as files describe it: one that runs, or should, says nothing of that."""
    return {
        name: Served(
            name=name,
            config=each.config,
            state=None if each.state == "RUNNING" else each.state,
        )
        for name, each in there_on(client).items()
    }
