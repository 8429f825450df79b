"""``headrace token``: manages the tokens of the server's clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.inputs import check_one_of
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json

if TYPE_CHECKING:
    from headrace.rest import TokenFile

app = typer.Typer(
    name="token",
    help="Manage the tokens of clients. Changes take effect at once on a running server; only "
    "the first token requires a restart.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The client's name, as in the audit log.")]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    role: Annotated[
        str,
        typer.Option(
            help="viewer: read only; operator: may also start, stop, change offsets and replay "
            "dead letters; admin: may do everything, as the server's own user."
        ),
    ] = "viewer",
    as_json: Json = False,
) -> None:
    """Create a token and print it. Only its hash is stored, so it cannot be shown again.

    An admin determines what the server runs as its own user: which files it reads and writes,
    which Python code and which JDBC drivers, within the settings allowed_paths,
    allow_python_code and allowed_drivers.
    """
    from headrace.rest import Role

    check_one_of(role, Role, "role", "--role")
    token = _file(context).add(name, Role(role))
    shown = {"name": name, "role": role, "token": token}
    invocation_of(context).terminal.show(shown, token)


@app.command("list")
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List the names and roles of the tokens."""
    found = _file(context).tokens()
    invocation_of(context).terminal.show_rows(
        ("name", "role"),
        json=[{"name": each.name, "role": each.role} for each in found],
        empty="no tokens",
    )


@app.command()
def delete(context: typer.Context, name: Name) -> None:
    """Delete a token; requests with it are rejected from now on."""
    _file(context).remove(name)
    invocation_of(context).terminal.print(f"{name}: deleted")


def _file(context: typer.Context) -> TokenFile:
    from headrace.rest import TokenFile

    return TokenFile(invocation_of(context).settings.server_tokens)
