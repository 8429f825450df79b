"""``headrace token``: the clients of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from headrace.rest import Role, TokenFile

app = typer.Typer(
    name="token",
    help="Say who may use the server. Changes count at once, also where it runs; only the "
    "first token needs a new start.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The client's name, which the audit log shows.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    role: Annotated[
        str,
        typer.Option(
            help="viewer: sees; operator: also starts, stops and moves; admin: does all, as "
            "the server's own user."
        ),
    ] = "viewer",
    as_json: Json = False,
) -> None:
    """Make a token, and print it: it is kept as a hash, and cannot be shown again.

    An admin decides what the server runs, as the server's own user: which files it reads and
    writes, and which Python, as far as the settings allowed_paths and allow_python_code let
    it.
    """
    invocation = invocation_of(context)
    token = _file(context).add(name, _role(role))
    if as_json:
        invocation.terminal.print_json({"name": name, "role": role, "token": token})
    else:
        invocation.terminal.print(token)


@app.command("list")
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List the names and roles of the tokens."""
    found = _file(context).tokens()
    invocation_of(context).terminal.show_rows(
        ("name", "role"),
        ((each.name, each.role) for each in found),
        json=[{"name": each.name, "role": each.role} for each in found],
        as_json=as_json,
        empty="no tokens",
    )


@app.command()
def delete(context: typer.Context, name: Name) -> None:
    """Take a token away: whoever shows it is refused from now on."""
    _file(context).remove(name)
    invocation_of(context).terminal.print(f"{name}: deleted")


def _file(context: typer.Context) -> TokenFile:
    from headrace.rest import TokenFile

    return TokenFile(invocation_of(context).settings.server_tokens)


def _role(text: str) -> Role:
    from headrace.rest import Role
    from headrace.sdk import ConfigError

    if text not in list(Role):
        problem, fix = f"Invalid role {text!r}.", f"Use one of: {', '.join(Role)}."
        raise ConfigError(problem, field="--role", fix=fix)
    return Role(text)
