"""Which connectors a command is about, and how something is done with each of them."""

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
    """Return whether a name stands for those that match it."""
    return bool(_PATTERN & set(name))


def selected(client: Client, names: Sequence[str] | None) -> list[str]:
    """Return the connectors that names and patterns stand for, each once; all for none.

    Raises NotThereError for a pattern that nothing matches. A name without a pattern is taken
    as it is.
    """
    return matching(names, client.names, "connector") if names else client.names()


def matching(names: Sequence[str], all_names: Callable[[], list[str]], noun: str) -> list[str]:
    """Return what names and patterns stand for. Raises as ``selected`` does."""
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
            fix = f"There are: {', '.join(known[:10])}." if known else "There is none yet."
            raise NotThereError(problem, field="NAME", fix=fix)
        found |= dict.fromkeys(matching)
    return list(found)


def confirm_patterns(
    terminal: Terminal, names: Sequence[str], found: Sequence[str], *, yes: bool
) -> None:
    """Ask before all that patterns stand for is deleted. Raises ConfigError for --yes."""
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
    """Do something with each connector, wait if asked to, say so, and exit with a code.

    An error with one leaves the others alone.

    Args:
        client: The server.
        terminal: Where it is said.
        work: What is done, by connector; each returns what was asked for, such as ``pausing``.
        goal: What is waited for; None for nothing.
        seconds: For how long.
        reached: What is said of a connector that has reached the goal; the goal by default.
        is_awaited: Whether a connector is waited for.
        key: The JSON field of what was done. Where it is given, that is printed even if
            something is waited for.
        more: Returns more fields of the JSON of a connector.
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
            raise  # the others would fail the same way
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
    """Print the JSON, or the errors, and exit with the errors' code."""
    from headrace.cli.failures import errors_json, exit_code, show
    from headrace.sdk import ConfigError

    for name, error in errors.items():
        if terminal.as_json:
            done.setdefault(name, {"name": name})["errors"] = errors_json([error])
        else:
            # What is wrong with a configuration does not say whose it is.
            named = len(done) + len(errors) > 1 and isinstance(error, ConfigError)
            show([error], terminal, where=name if named else "")
    if terminal.as_json:
        terminal.print_json(list(done.values()))
    if errors:
        raise typer.Exit(exit_code(errors.values()))


def waiting_for(client: Client, terminal: Terminal, goal: Goal, seconds: float) -> Waiting:
    """Return what waits for connectors, and prints how they change."""
    from headrace.client import Wait

    def changed(name: str, status: ConnectorStatus | None) -> None:
        parts = ("gone",) if status is None else (status.state, status.task_states)
        terminal.note(f"{name}: {', '.join(filter(None, parts)).lower()}")

    within = timedelta(seconds=seconds)
    return Wait(client=client, goal=goal, within=within, on_change=changed)


def for_each(
    names: Collection[str], asked: str, do: Callable[[str], object]
) -> dict[str, Callable[[], str]]:
    """Return the work of ``carry_out`` that does one thing with each connector."""

    def run(name: str) -> str:
        do(name)
        return asked

    return {name: partial(run, name) for name in names}
