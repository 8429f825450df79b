"""Which connectors a command is about, and what is done with each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.cli.terminal import Terminal
    from headrace.client import Client, ConnectorStatus, Goal
    from headrace.client import Wait as Waiting
    from headrace.sdk import HeadraceError


_PATTERN = set("*?[")


def is_pattern(name: str) -> bool:
    """Return whether a name stands for those that match it."""
    return bool(_PATTERN & set(name))


def chosen(client: Client, given: Sequence[str] | None) -> list[str]:
    """Return the connectors that names and patterns stand for, each once; all for none.

    Raises NotThereError for a pattern that nothing matches. A name without a pattern is taken
    as it is.
    """
    from headrace.client import NotThereError

    if given is None or not given:
        return client.names()
    known = client.names() if any(map(is_pattern, given)) else []
    found: dict[str, None] = {}
    for each in given:
        if not is_pattern(each) or each in known:
            found[each] = None
            continue
        matching = [name for name in known if fnmatchcase(name, each)]
        if not matching:
            problem = f"No connector matches {each!r}."
            fix = f"There are: {', '.join(known[:10])}." if known else "There is none yet."
            raise NotThereError(problem, field="NAME", fix=fix)
        found |= dict.fromkeys(matching)
    return list(found)


@dataclass(frozen=True, kw_only=True)
class Action:
    """Something that is done with connectors.

    Args:
        asked: What is said once it was asked for, such as ``pausing``.
        done: What is said once it is so, such as ``paused``.
        run: Does it with one connector.
        goal: What is waited for; None for nothing.
        seconds: How long.
    """

    asked: str
    done: str
    run: Callable[[Client, str], object]
    goal: Goal | None = None
    seconds: float = 60.0


@dataclass
class Outcome:
    """What became of each connector."""

    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: dict[str, HeadraceError] = field(default_factory=dict)

    def finish(self, terminal: Terminal) -> None:
        """Print JSON if that is asked for, show errors else, and exit with their code."""
        from headrace.cli.failures import errors_json, exit_code, show
        from headrace.sdk import ConfigError

        if terminal.as_json:
            for name, error in self.errors.items():
                self.told.setdefault(name, {"name": name})["errors"] = errors_json([error])
            terminal.print_json(list(self.told.values()))
        else:
            several = len(self.told) + len(self.errors) > 1
            for name, error in self.errors.items():
                # What is wrong with a configuration does not say whose it is.
                named = several and isinstance(error, ConfigError)
                show([error], terminal, where=name if named else "")
        if self.errors:
            raise typer.Exit(exit_code(self.errors.values()))


def act(context: typer.Context, names: Sequence[str], action: Action) -> None:
    """Do something with each of the connectors; an error with one leaves the others alone."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        carry_out(client, chosen(client, names), action, invocation.terminal)


def carry_out(client: Client, names: Sequence[str], action: Action, terminal: Terminal) -> None:
    """Do something with each connector of these names, wait if asked to, and say so."""
    from headrace.client import ServerUnreachableError
    from headrace.sdk import HeadraceError

    outcome = Outcome()
    waiting = None if action.goal is None else waiting_for(client, action, terminal)
    if waiting is not None:
        waiting.started(names)
    for name in names:
        try:
            action.run(client, name)
        except ServerUnreachableError:
            raise  # the others would fail the same way
        except HeadraceError as error:
            outcome.errors[name] = error
        else:
            outcome.told[name] = {"name": name, "asked": action.asked}
    if waiting is None:
        tell(terminal, outcome.told, action.asked)
    else:
        waited(waiting, outcome, action, terminal)
    outcome.finish(terminal)


def waiting_for(client: Client, action: Action, terminal: Terminal) -> Waiting:
    """Return what waits for an action, and tells what it sees."""
    from headrace.client import Wait

    assert action.goal is not None
    within = timedelta(seconds=action.seconds)

    def told(name: str, status: ConnectorStatus | None) -> None:
        terminal.note(f"{name}: {stated(status)}")

    return Wait(client=client, goal=action.goal, within=within, told=told)


def waited(waiting: Waiting, outcome: Outcome, action: Action, terminal: Terminal) -> None:
    """Wait for all that was asked for, and say what became of it."""
    from headrace.sdk import HeadraceError

    names = list(outcome.told)
    try:
        statuses = waiting.until(names) if names else {}
    except HeadraceError as error:
        outcome.errors[error.field or names[0]] = error
        return
    for name, status in statuses.items():
        outcome.told[name]["state"] = None if status is None else status.state
    tell(terminal, names, action.done)


def tell(terminal: Terminal, names: Iterable[str] | Mapping[str, object], what: str) -> None:
    """Print what became of connectors, a line each, unless JSON is printed."""
    if not terminal.as_json:
        terminal.print(*(f"{name}: {what}" for name in names))


def stated(status: ConnectorStatus | None) -> str:
    """Return how a connector is, in a few words."""
    if status is None:
        return "gone"
    return ", ".join(part for part in (status.state.lower(), counted(status)) if part)


def counted(status: ConnectorStatus) -> str:
    """Return how many tasks of a connector are in which state: ``2 running, 1 failed``."""
    numbers: dict[str, int] = {}
    for task in status.tasks:
        numbers[task.state.lower()] = numbers.get(task.state.lower(), 0) + 1
    return ", ".join(f"{number} {state}" for state, number in numbers.items())
