"""Selects the connectors of a command and runs an action on each of them."""

from __future__ import annotations

from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from headrace.cli.terminal import Terminal
    from headrace.client import Client, ConnectorStatus, Goal
    from headrace.client import Wait as Waiting
    from headrace.sdk import HeadraceError


_PATTERN = set("*?[")


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern."""
    return bool(_PATTERN & set(name))


def selected(client: Client, names: Sequence[str] | None) -> list[str]:
    """Return the connectors for names and patterns without duplicates; all without names.

    Raises NotThereError for a pattern without a match. A name that is not a pattern is returned
    unchecked.
    """
    return matching(names, client.names, "connector") if names else client.names()


def matching(names: Sequence[str], all_names: Callable[[], list[str]], noun: str) -> list[str]:
    """Return the names that match names and patterns. Raises as ``selected`` does."""
    from headrace.client import NotThereError

    known = all_names() if any(map(is_pattern, names)) else []
    found: dict[str, None] = {}
    for each in names:
        if not is_pattern(each) or each in known:
            found[each] = None
            continue
        matching = [name for name in known if fnmatchcase(name, each)]
        if not matching:
            problem = f"No {noun} matches {each!r}."
            fix = f"Use one of: {', '.join(known[:10])}." if known else "There is none yet."
            raise NotThereError(problem, field="NAME", fix=fix)
        found |= dict.fromkeys(matching)
    return list(found)


def confirm_patterns(
    terminal: Terminal, names: Sequence[str], found: Sequence[str], *, yes: bool
) -> None:
    """Ask before deleting the matches of patterns. Raises ConfigError without a terminal."""
    if any(map(is_pattern, names)) and not yes:
        terminal.confirm(
            "\n".join([*found, f"Delete these {len(found)}?"]),
            f"The pattern matches {len(found)}: {', '.join(found)}.",
            "Add --yes to delete all of them.",
        )


def carry_out(
    client: Client,
    terminal: Terminal,
    work: Mapping[str, Callable[[], str]],
    goal: Goal | None,
    seconds: float,
    *,
    reached: str = "",
    is_awaited: Callable[[str], bool] = lambda _name: True,
    key: str = "",
    more: Callable[[str], Mapping[str, Any]] = lambda _name: {},
) -> None:
    """Run an action on each connector, wait for the goal, print results, exit on errors.

    An error with one connector does not affect the others.

    Args:
        client: The client.
        terminal: The terminal for results.
        work: The actions by connector; each returns its outcome, such as ``pausing``.
        goal: The state to wait for; None to not wait.
        seconds: The maximum wait.
        reached: The text printed when a connector has reached the goal; the goal by default.
        is_awaited: Returns whether to wait for a connector.
        key: The JSON field of the outcome, ``asked`` by default. If set, outcomes are printed
            even if there is a goal.
        more: Returns additional JSON fields of a connector.

    Raises:
        typer.Exit: An action or the wait failed; with the exit code of the errors.
        ServerUnreachableError: No server responds.
    """
    from headrace.client import ServerUnreachableError
    from headrace.sdk import HeadraceError

    done: dict[str, dict[str, Any]] = {}
    errors: dict[str, HeadraceError] = {}
    waiting = None if goal is None else waiting_for(client, terminal, goal, seconds)
    if waiting is not None:
        waiting.started(list(work))
    for name, do in work.items():
        try:
            asked = do()
        except ServerUnreachableError:
            raise  # the remaining actions would fail the same way
        except HeadraceError as error:
            errors[name] = error
        else:
            done[name] = {"name": name, key or "asked": asked, **more(name)}
            if (key or waiting is None) and not terminal.as_json:
                terminal.print(f"{name}: {asked}")
    awaited = list(filter(is_awaited, done))
    if waiting is not None and awaited:
        try:
            for name, status in waiting.until(awaited).items():
                done[name]["state"] = None if status is None else status.state
                if not terminal.as_json:
                    terminal.print(f"{name}: {reached or waiting.goal.value.lower()}")
        except HeadraceError as error:
            errors[error.field or awaited[0]] = error
    _finish(terminal, done, errors)


def _finish(
    terminal: Terminal, done: dict[str, dict[str, Any]], errors: Mapping[str, HeadraceError]
) -> None:
    """Print the JSON or the errors; exit with the code of the errors if there are any."""
    from headrace.cli.failures import errors_json, exit_code, show
    from headrace.sdk import ConfigError

    for name, error in errors.items():
        if terminal.as_json:
            done.setdefault(name, {"name": name})["errors"] = errors_json([error])
        else:
            # An error in a configuration does not name the connector.
            named = len(done) + len(errors) > 1 and isinstance(error, ConfigError)
            show([error], terminal, where=name if named else "")
    if terminal.as_json:
        terminal.print_json(list(done.values()))
    if errors:
        raise typer.Exit(exit_code(errors.values()))


def waiting_for(client: Client, terminal: Terminal, goal: Goal, seconds: float) -> Waiting:
    """Return a Wait for connectors that prints their state changes."""
    from headrace.client import Wait

    def changed(name: str, status: ConnectorStatus | None) -> None:
        parts = ("gone",) if status is None else (status.state, status.task_states)
        terminal.note(f"{name}: {', '.join(filter(None, parts)).lower()}")

    within = timedelta(seconds=seconds)
    return Wait(client=client, goal=goal, within=within, on_change=changed)


def for_each(
    names: Collection[str], asked: str, do: Callable[[str], object]
) -> dict[str, Callable[[], str]]:
    """Return the ``work`` for ``carry_out`` that calls ``do`` with each connector."""

    def run(name: str) -> str:
        do(name)
        return asked

    return {name: partial(run, name) for name in names}
