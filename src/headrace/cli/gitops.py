"""``headrace export`` and ``headrace apply``: connectors as files that are kept in Git."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import quote

import typer

from headrace.cli.connector.selection import carry_out, selected
from headrace.cli.formats import diff_lines
from headrace.cli.inputs import read_files, read_placed
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, MaybeNames, Seconds, Wait, Yes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.client import Client
    from headrace.control import Served


_REFERENCE = re.compile(r"\$\{[^}]+\}")
HIDDEN = "[hidden]"


class Kind(StrEnum):
    """The action on a connector."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


class KeyChange(NamedTuple):
    """A changed key; None means that it is absent. Secrets are hidden."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class There:
    """A connector on the server: its configuration and its target state."""

    config: Mapping[str, str]
    state: str


@dataclass(frozen=True, slots=True)
class Change:
    """The planned change of one connector.

    Args:
        kind: The action.
        name: The connector.
        target: The new definition; None for a deletion.
        there: The current state on the server; None for a creation.
        twin: The name of a connector with the same configuration that no file defines:
            probably this connector was renamed.
    """

    kind: Kind
    name: str
    target: Served | None = None
    there: There | None = None
    twin: str | None = None

    @property
    def configures(self) -> bool:
        if self.target is None or self.there is None:
            return self.target is not None
        return dict(self.target.config) != dict(self.there.config)

    @property
    def state(self) -> str | None:
        """The new target state; None if it does not change."""
        target = None if self.target is None else self.target.state
        return None if self.there is not None and target == self.there.state else target

    def keys(self, secret: Iterable[str] = ()) -> list[KeyChange]:
        """Return the changed keys by name; the values of ``secret`` keys are hidden."""
        hidden = set(secret)
        old = {} if self.there is None else dict(self.there.config)
        new = {} if self.target is None else dict(self.target.config)
        if self.kind is Kind.DELETE:
            return []
        changes = [
            KeyChange(key, _shown(key, old.get(key), hidden), _shown(key, new.get(key), hidden))
            for key in sorted({*old, *new} - {"name"})
            if old.get(key) != new.get(key)
        ]
        if self.state is not None:
            before = None if self.there is None else self.there.state.lower()
            changes.append(KeyChange("(state)", before, self.state.lower()))
        return changes


@dataclass(frozen=True)
class Plan:
    """All changes, ordered by name, and the number of unchanged connectors."""

    changes: Sequence[Change]
    unchanged: int
    secrets: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        signs = {Kind.CREATE: "+", Kind.CHANGE: "~", Kind.DELETE: "-"}
        found: list[str] = []
        for change in self.changes:
            found.append(f"{signs[change.kind]} {change.kind} {change.name}")
            if change.twin is not None:
                found += [
                    f"    ! same configuration as {change.twin}: a new name has no offsets, so",
                    "      everything is read from the beginning; keep the name to continue",
                ]
            for key in self._keys(change):
                found += (f"    {line}" for line in diff_lines(*key))
        return found

    def summary(self) -> str:
        numbers = [
            f"{sum(change.kind is kind for change in self.changes)} to {kind}"
            for kind in Kind
            if any(change.kind is kind for change in self.changes)
        ]
        return ", ".join([*numbers, f"{self.unchanged} unchanged"])

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "name": change.name,
                "action": change.kind.value,
                **({} if change.twin is None else {"same_config_as": change.twin}),
                "changes": [key._asdict() for key in self._keys(change)],
            }
            for change in self.changes
        ]

    def _keys(self, change: Change) -> list[KeyChange]:
        return change.keys(self.secrets.get(change.name, frozenset()))


def plan(described: Sequence[Served], there: Mapping[str, There], *, prune: bool) -> Plan:
    """Compare definitions with unique names to a server's connectors.

    With ``prune`` the plan deletes connectors that no file defines.
    """
    changes: list[Change] = []
    unchanged = 0
    names = {each.name for each in described}
    for each in sorted(described, key=lambda one: one.name):
        known = there.get(each.name)
        if known is None:
            change = Change(Kind.CREATE, each.name, each, twin=_twin(each, there, names))
        else:
            change = Change(Kind.CHANGE, each.name, each, known)
        if change.configures or change.state is not None:
            changes.append(change)
        else:
            unchanged += 1
    left = sorted(there.keys() - names) if prune else []
    changes += [Change(Kind.DELETE, name, None, there[name]) for name in left]
    return Plan(changes, unchanged)


def _twin(new: Served, there: Mapping[str, There], described: set[str]) -> str | None:
    """Return a connector that no file defines and that has the configuration of a new one."""
    own = _bare(new.config)
    for name in sorted(there.keys() - described):
        other = _bare(there[name].config)
        if other.keys() == own.keys() and all(
            own[key] == value or HIDDEN in value for key, value in other.items()
        ):
            return name
    return None


def _bare(config: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in config.items() if key != "name"}


def _shown(key: str, value: str | None, hidden: set[str]) -> str | None:
    """Return a value; a secret is hidden unless the value is only a reference."""
    if value is None or key not in hidden or _REFERENCE.fullmatch(value.strip()):
        return value
    return HIDDEN


SUFFIXES = {".json", ".properties", ".yaml", ".yml"}
_FIRST = ("connector.class", "tasks.max", "topic", "topics")
"""The first keys of a file; the others follow sorted by name."""


def files_below(places: Sequence[Path]) -> list[Path]:
    """Return the named files and the definition files in the named folders, at any depth.

    Skips paths with a part that starts with a dot, and files whose suffix is not in
    ``SUFFIXES``. Raises ConfigError for a path that does not exist.
    """
    from headrace.sdk import ConfigError

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
    from ruamel.yaml import YAML

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
    from headrace.control import Served

    return {
        name: Served(
            name=name,
            config=each.config,
            state=None if each.state == "RUNNING" else each.state,
        )
        for name, each in there_on(client).items()
    }


TO_CHANGE = 4
"""The exit code of a dry run that found changes."""


def apply(
    context: typer.Context,
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Definition files, or folders of them; - is the standard input.",
            allow_dash=True,
        ),
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan without changing anything.")
    ] = False,
    yes: Yes = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete connectors that no file defines.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only connectors whose names match."),
    ] = None,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Change a server's connectors to match files: show a plan, ask, then apply it.

    The server validates everything first; nothing is changed if there is any error. Exit codes:
    0 applied or nothing to do, 4 a dry run found changes, 1 an action failed, 2 the files are
    invalid, 3 no server responds.
    """
    from headrace.client import Goal

    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        plan = _checked_plan(client, places, only, prune=prune)
        if not as_json:
            terminal.print(*plan.lines(), plan.summary())
        if dry_run or not plan.changes:
            if as_json:
                shown = {"applied": False, "plan": plan.to_json(), "unchanged": plan.unchanged}
                terminal.print_json(shown)
            raise typer.Exit(TO_CHANGE if plan.changes else 0)
        if not yes:
            problem = f"Changes need confirmation ({plan.summary()}), but there is no terminal."
            terminal.confirm("Do it?", problem, "Add --yes to do it, or --dry-run.")
        to_run = set()
        for change in plan.changes:
            before = "RUNNING" if change.there is None else change.there.state
            if change.target is not None and (change.target.state or before) == "RUNNING":
                to_run.add(change.name)
        carry_out(
            client,
            terminal,
            {change.name: partial(_do, client, change) for change in plan.changes},
            Goal.RUNNING if wait else None,
            timeout,
            is_awaited=to_run.__contains__,
            key="done",
        )


def _checked_plan(
    client: Client, places: Sequence[Path], only: list[str] | None, *, prune: bool
) -> Plan:
    """Return the plan, validated by the server. Raises ConfigErrors with all errors."""
    from fnmatch import fnmatchcase

    def matches(name: str) -> bool:
        return not only or any(fnmatchcase(name, each) for each in only)

    described = [each for each in read_files(files_below(places)) if matches(each.name)]
    there = {name: each for name, each in there_on(client).items() if matches(name)}
    found = plan(described, there, prune=prune)
    return replace(found, secrets=_secrets(client, found.changes))


def _secrets(client: Client, changes: Sequence[Change]) -> dict[str, frozenset[str]]:
    """Validate new configurations on the server; return the secret keys by connector."""
    from headrace.sdk import ConfigError, ConfigErrors, HeadraceError

    errors: list[ConfigError] = []
    secrets: dict[str, frozenset[str]] = {}
    for change in changes:
        if change.target is None or not change.configures:
            continue
        try:
            validation = client.validate(change.target.config)
        except HeadraceError as error:
            errors.append(ConfigError(error.problem, fix=error.fix, field=change.name))
            continue
        secrets[change.name] = validation.secrets
        errors += (
            ConfigError(each.problem, fix=each.fix, field=f"{change.name}: {each.field}")
            for each in validation.errors
        )
    if errors:
        raise ConfigErrors(errors)
    return secrets


def _do(client: Client, change: Change) -> str:
    if change.target is None:
        client.delete(change.name)
        return "deleted"
    if change.there is None:
        first = change.target.state or change.target.initial_state
        client.create(change.name, change.target.config, state=first)
        return "created"
    if change.configures:
        client.configure(change.name, change.target.config)
    steps = {"RUNNING": client.resume, "PAUSED": client.pause, "STOPPED": client.stop}
    if change.state is not None:
        steps[change.state](change.name)
    return "changed"


def export(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Created if missing.")],
    names: MaybeNames = None,
    *,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete files of connectors that are not on the server."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a server's connectors to a folder, one YAML file each, for `headrace apply`.

    References such as ${env:NAME} and hidden values are written as the server returns them. A
    connector that is already defined in another file of the folder is not written.
    """
    invocation = invocation_of(context)
    with invocation.client() as client:
        there = described_on(client)
        selection = set(selected(client, names)) if names else set(there)
    folder.mkdir(parents=True, exist_ok=True)
    known = {
        name: (file, each) for (file, name), each in read_placed(files_below([folder])).items()
    }
    done: list[tuple[str, str, Path]] = []
    for name, each in there.items():
        if name not in selection:
            continue
        own = folder / file_name(name)
        file, before = known.get(name, (own, None))
        same = before and (dict(before.config), before.state) == (dict(each.config), each.state)
        if same:
            done.append((name, "unchanged", file))
        elif file != own:
            # A file that a user wrote: it may define more connectors, in another form.
            done.append((name, "differs", file))
        else:
            own.write_text(yaml_text(each), encoding="utf-8")
            done.append((name, "written" if before is None else "changed", own))
    for name in () if names else sorted(known.keys() - there.keys()):
        file, _ = known[name]
        if prune and file == folder / file_name(name):
            file.unlink()
            done.append((name, "removed", file))
        else:
            done.append((name, "not on the server", file))
    invocation.terminal.show(
        [{"name": name, "done": what, "file": str(file)} for name, what, file in done],
        *(f"{file}: {what}" for _, what, file in done),
        empty="no connectors",
    )
