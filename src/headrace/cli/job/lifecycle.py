"""Creates, edits, submits, approves, rejects, suspends, resumes and deletes jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.selection import carry_out, confirm_patterns, for_each, matching
from headrace.cli.inputs import documents_in
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Files, JobName, JobNames, Json, YesAll

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.client import JobsApi


def _command(about: str, do: Callable[[JobsApi, str], dict[str, Any]]) -> Callable[..., None]:
    """Return a command that changes the state of jobs."""

    def command(context: typer.Context, names: JobNames, as_json: Json = False) -> None:
        _bring(context, names, do)

    command.__doc__ = about
    return command


def _bring(
    context: typer.Context, names: list[str], do: Callable[[JobsApi, str], dict[str, Any]]
) -> None:
    invocation = invocation_of(context)
    with invocation.client() as client:

        def bring(name: str) -> str:
            return str(do(client.jobs, name)["state"])

        found = matching(names, client.jobs.names, "job")
        work = {name: partial(bring, name) for name in found}
        carry_out(client, invocation.terminal, work, None, 0, key="state")


submit = _command(
    "Submit drafts for approval; a job without approvers is approved at once.",
    lambda jobs, name: jobs.submit(name),
)
suspend = _command(
    "Start no more runs of jobs; active runs finish. See resume.",
    lambda jobs, name: jobs.suspend(name),
)
resume = _command(
    "Resume jobs that were suspended or have failed. The setting catchup determines which "
    "missed windows run.",
    lambda jobs, name: jobs.resume(name),
)


def approve(
    context: typer.Context,
    name: JobName,
    *,
    version: Annotated[
        int | None,
        typer.Option(min=1, help="The version that you reviewed; fails if it has changed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Approve a submitted job. You must be one of its approvers."""
    _bring(context, [name], lambda jobs, name: jobs.approve(name, version))


def reject(
    context: typer.Context,
    name: JobName,
    *,
    why: Annotated[str, typer.Option(help="What must be changed.")],
    as_json: Json = False,
) -> None:
    """Reject a submitted job. You must be one of its approvers."""
    _bring(context, [name], lambda jobs, name: jobs.reject(name, why))


def delete(
    context: typer.Context, names: JobNames, *, yes: YesAll = False, as_json: Json = False
) -> None:
    """Delete jobs with their runs. Written data is kept."""
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        found = matching(names, client.jobs.names, "job")
        confirm_patterns(terminal, names, found, yes=yes)
        left: dict[str, list[str]] = {}

        def delete_one(name: str) -> None:
            left[name] = client.jobs.delete(name)
            for each in left[name] if not as_json else ():
                terminal.print(f"{name}: {each}")

        work = for_each(found, "deleted", delete_one)
        more = lambda name: {"left": left[name]} if left.get(name) else {}  # noqa: E731
        carry_out(client, terminal, work, None, 0, more=more)


def create(
    context: typer.Context,
    files: Files,
    *,
    submit: Annotated[
        bool, typer.Option("--submit", help="Also submit them; they run once approved.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create jobs from files, as drafts. Fails if one exists."""
    documents = _documents(files)
    invocation = invocation_of(context)
    with invocation.client() as client:

        def make(document: Mapping[str, Any]) -> str:
            made = client.jobs.create(document)
            if submit:
                made = client.jobs.submit(made["name"])
            else:
                hint = f"{made['name']} is a draft; submit it: headrace job submit"
                invocation.terminal.note(f"{hint} {made['name']}")
            return str(made["state"])

        work = {name: partial(make, each) for name, each in documents.items()}
        carry_out(client, invocation.terminal, work, None, 0, key="state")


def edit(context: typer.Context, files: Files, as_json: Json = False) -> None:
    """Replace the documents of jobs with those of files. Equal documents change nothing.

    Windows continue where they were. A job that requires approval is submitted again, and
    starts no run before its approval.
    """
    documents = _documents(files)
    invocation = invocation_of(context)
    with invocation.client() as client:
        work = {n: partial(_edit, client.jobs, n, each) for n, each in documents.items()}
        carry_out(client, invocation.terminal, work, None, 0, key="state")


def _edit(jobs: JobsApi, name: str, document: Mapping[str, Any]) -> str:
    return str(jobs.edit(name, document)["state"])


def _documents(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the documents of files by job name, in JSON types. Raises ConfigError."""
    import json

    from headrace.sdk import ConfigError

    found: dict[str, dict[str, Any]] = {}
    for file in files:
        for document in documents_in(file):
            name = document.get("name") if isinstance(document, dict) else None
            if not isinstance(name, str) or not name:
                problem, fix = f"A document in {file} has no name.", "Add the key name."
                raise ConfigError(problem, field="name", fix=fix)
            if name in found:
                problem = f"Two documents have the name {name}."
                raise ConfigError(problem, field="name", fix="Rename one.")
            # Types that only YAML has, such as dates, become text.
            found[name] = json.loads(json.dumps(document, default=str))
    return found
