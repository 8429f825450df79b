"""Reads definitions from files: Kafka Connect's JSON, or YAML with sections."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    ScalarEvent,
)

from headrace.control.kafka_form import from_kafka
from headrace.control.yaml_form import from_sections
from headrace.sdk import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from headrace.model import Definition

_Read = TypeVar("_Read")
_MAX_NODES = 100_000
"""How many values a file's aliases may stand for."""


def read_definitions(path: Path, is_source: Callable[[str], bool]) -> list[Definition]:
    """Return the connectors that a file defines.

    A file holds one or more documents. One with ``connector.class`` is in Kafka
    Connect's form, any other has the sections ``source:`` and ``sinks:``.

    Args:
        path: A ``.json``, ``.yaml`` or ``.yml`` file.
        is_source: Tells of a connector class whether it reads.

    Raises:
        ConfigError: The file cannot be read or is not JSON or YAML.
        ConfigErrors: A document lacks what every definition needs.
    """
    definitions = read_each(read_documents(path), lambda each: _definitions(each, is_source))
    if not definitions:
        raise ConfigError(
            problem=f"{path} defines nothing.", fix="Add a source and sinks.", field="file"
        )
    return definitions


def read_each(
    documents: Iterable[object], read: Callable[[object], Iterable[_Read]]
) -> list[_Read]:
    """Return all that is read from documents.

    Raises:
        ConfigErrors: With everything that is wrong with any of them.
    """
    found: list[_Read] = []
    errors: list[ConfigError] = []
    for document in documents:
        try:
            found += read(document)
        except ConfigErrors as several:
            errors += several.errors
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise ConfigErrors(errors)
    return found


def read_config(path: Path) -> Mapping[str, object]:
    """Return the one mapping that a JSON or YAML file holds, as it stands there.

    Raises:
        ConfigError: The file cannot be read, is not JSON or YAML, or holds something else.
    """
    documents = read_documents(path)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        problem = f"{path} should hold one mapping of keys."
        raise ConfigError(problem, field="file", fix="Write key: value lines, or JSON.")
    return documents[0]


def _definitions(document: object, is_source: Callable[[str], bool]) -> list[Definition]:
    if not isinstance(document, dict):
        problem = f"A definition is a mapping of keys, not {type(document).__name__}."
        raise ConfigError(problem, fix="Begin with name: and source:.")
    inner = document.get("config")
    if "connector.class" in document or (isinstance(inner, dict) and "source" not in document):
        return [from_kafka(document, is_source)]
    return from_sections(document)


def read_documents(path: Path) -> Sequence[object]:
    """Return the documents of a JSON or YAML file; a list stands for what it holds.

    Raises:
        ConfigError: The file cannot be read, or is not JSON or YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
        raise ConfigError(problem, field="file", fix="Check the path.") from error
    return documents_of(text, path)


def documents_of(text: str, path: Path) -> Sequence[object]:
    """Return the documents of a text that stands in a file. Raises as ``read_documents``."""
    try:
        documents: list[Any] = [json.loads(text)] if _is_json(text, path) else _yaml(text, path)
    except RecursionError:
        problem = f"{path} nests too deeply."
        raise ConfigError(problem, field="file", fix="Nest less deeply.") from None
    return [
        item
        for document in documents
        if document is not None
        for item in (document if isinstance(document, list) else [document])
    ]


def _is_json(text: str, path: Path) -> bool:
    try:
        json.loads(text)
    except ValueError as error:
        if path.suffix == ".json":
            problem = f"{path} is not JSON: {error}."
            raise ConfigError(problem, field="file", fix="Correct it at that place.") from error
        return False
    return True


def _yaml(text: str, path: Path) -> list[Any]:
    try:
        _check_size(text, path)
        return list(YAML(typ="safe", pure=True).load_all(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = f"{path} is not YAML: {error.problem}{where}."
        raise ConfigError(problem, field="file", fix="Correct it at that place.") from error


def _check_size(text: str, path: Path) -> None:
    """Raise ConfigError for a text whose aliases stand for more than anybody writes.

    A few lines can stand for billions of values ("billion laughs"), so they are counted before
    any is made.
    """
    if "&" not in text or "*" not in text:
        return
    sizes: dict[str, int] = {}
    stack: list[tuple[str | None, int]] = [(None, 0)]  # what is open: its anchor and its size
    for event in YAML(typ="safe", pure=True).parse(text):
        size = 1
        if isinstance(event, AliasEvent):
            size = sizes.get(event.anchor, _MAX_NODES)
        elif isinstance(event, CollectionStartEvent):
            stack.append((event.anchor, 1))
            continue
        elif isinstance(event, CollectionEndEvent):
            anchor, size = stack.pop()
            sizes |= {} if anchor is None else {anchor: size}
        elif isinstance(event, ScalarEvent) and event.anchor is not None:
            sizes[event.anchor] = 1
        anchor, before = stack[-1]
        stack[-1] = (anchor, before + size)
        if stack[-1][1] > _MAX_NODES:
            problem = f"{path} stands for more than {_MAX_NODES} values with its aliases."
            fix = "Write what is repeated less often."
            raise ConfigError(problem, field="file", fix=fix)


def check_names(definitions: Sequence[Definition]) -> None:
    """Raise ConfigErrors when two connectors that are to run together share a name."""
    names = [definition.name for definition in definitions]
    repeated = sorted({name for name in names if names.count(name) > 1})
    errors = [
        ConfigError(
            problem=f"Two connectors are called {name!r}.", field="name", fix="Rename one."
        )
        for name in repeated
    ]
    if errors:
        raise ConfigErrors(errors)
