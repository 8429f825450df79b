"""Creates and edits jobs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.selection import carry_out
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Files, Json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.client import JobsApi


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

    from headrace.cli.definition_files import documents_in
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
