"""Connectors in the form of definition files: those in a folder, and those on a server."""

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
"""The first keys of a file; the others follow sorted by name."""


def files_below(places: Sequence[Path]) -> list[Path]:
    """Return the named files and the definition files in the named folders, at any depth.

    Skips paths with a part that starts with a dot, and files whose suffix is not in
    ``SUFFIXES``. Raises ConfigError for a path that does not exist.
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
    """Return the file name for a connector; no connector name can escape the folder."""
    text = quote(name, safe=" @+,=")
    # A leading dot would hide the file, and ".." is a folder.
    return f"%2E{text[1:]}.yaml" if text.startswith(".") else f"{text}.yaml"


def yaml_text(described: Served) -> str:
    """Return a connector as YAML; parsing the YAML returns exactly the same texts."""
    keys = [key for key in _FIRST if key in described.config]
    keys += sorted(described.config.keys() - {*keys, "name"})
    document: dict[str, object] = {"name": described.name}
    if described.state is not None:
        document["state"] = described.state.lower()
    document["config"] = {key: described.config[key] for key in keys}
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 10_000  # keeps a long value on one line, for readable diffs
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def there_on(client: Client) -> dict[str, There]:
    """Return a server's connectors by name."""
    targets = client.targets()
    return {
        name: There(dict(info.config), targets[name])
        for name, info in client.infos().items()
        if name in targets
    }


def described_on(client: Client) -> dict[str, Served]:
    """Return a server's connectors as definitions; the target state RUNNING is omitted."""
    return {
        name: Served(
            name=name,
            config=each.config,
            state=None if each.state == "RUNNING" else each.state,
        )
        for name, each in there_on(client).items()
    }
