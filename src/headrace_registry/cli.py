"""``headrace registry``: serves and manages the schema registry.

The kernel's CLI imports this module at every start, so each command imports what it needs.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json

if TYPE_CHECKING:
    from headrace.cli.invocation import Invocation
    from headrace_plugins.confluent.schema_registry import (
        SchemaReference,
        SchemaRegistryAdmin,
        SchemaText,
    )

app = typer.Typer(
    help="Serve the schema registry, and manage it or another one. Does not start Spark."
)

Url = Annotated[
    str,
    typer.Option(
        help="The registry's URLs; embedded is the registry in the home folder. A URL without "
        "user and password uses the setting registry_token, if it is set.",
    ),
]
SubjectName = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject.")]
SchemaFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="The schema: .avsc, .json or .proto.", exists=True, dir_okay=False
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", help="NAME=SUBJECT:VERSION of a referenced schema."),
]
Deleted = Annotated[bool, typer.Option("--deleted", help="Include deleted ones.")]


@app.command()
def serve(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 8081,
    host: Annotated[
        str,
        typer.Option(
            help="An address other than a loopback address requires a token or client "
            "certificates."
        ),
    ] = "127.0.0.1",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address as a JSON object.")
    ] = False,
) -> None:
    """Serve the embedded registry with Confluent's API, until Ctrl-C.

    The token is the setting registry_token; clients send it as a bearer token, or as the
    password of any user. The settings registry_ssl_certificate and registry_ssl_key enable
    TLS; with registry_ssl_client_ca clients must also present a certificate.
    """
    from headrace.cli.server import serve, tls_of
    from headrace.rest import Listener, Serving, SharedToken
    from headrace_registry.embedded import service_in
    from headrace_registry.rest import registry_app

    invocation = invocation_of(context)
    settings = invocation.settings
    secret = settings.registry_token
    listener = Listener(
        host=host,
        port=port,
        keys=None if secret is None else SharedToken(secret.get_secret_value()),
        advice="Set HEADRACE_REGISTRY_TOKEN, or HEADRACE_REGISTRY_SSL_CLIENT_CA with a "
        "certificate, or listen on 127.0.0.1.",
        tls=tls_of(settings, "registry"),
        body_bytes=settings.registry_max_request_bytes,
    )
    with (
        closing(service_in(invocation.settings.store_place)) as service,
        Serving(registry_app(service, listener), listener) as serving,
    ):
        serve(serving, invocation.terminal, "The schema registry")


@app.command()
def subjects(
    context: typer.Context,
    url: Url = "embedded",
    deleted: Deleted = False,
    as_json: Json = False,
) -> None:
    """List the subjects."""
    invocation = invocation_of(context)
    with _opened(invocation, url) as registry:
        found = registry.all_subjects() if deleted else registry.subjects()
    invocation.terminal.show(found, *found, empty="no subjects")


@app.command()
def versions(
    context: typer.Context,
    subject: SubjectName,
    url: Url = "embedded",
    deleted: Deleted = False,
    as_json: Json = False,
) -> None:
    """List a subject's versions."""
    invocation = invocation_of(context)
    with _opened(invocation, url) as registry:
        numbers = registry.all_versions(subject) if deleted else registry.versions(subject)
        found = [registry.version(subject, number) for number in numbers]
    lines = [
        {"version": each.version, "id": each.id, "type": each.schema.type.value}
        for each in found
    ]
    invocation.terminal.show_rows(
        ("version", "id", "type"),
        json=lines,
        right=("version", "id"),
    )


@app.command()
def show(
    context: typer.Context,
    subject: SubjectName,
    version: Annotated[
        int | None, typer.Option(min=1, help="The version; the newest by default.")
    ] = None,
    url: Url = "embedded",
    as_json: Json = False,
) -> None:
    """Print a schema."""
    invocation = invocation_of(context)
    with _opened(invocation, url) as registry:
        if version is None:
            found = registry.latest(subject)
        else:
            found = registry.version(subject, version)
    if not as_json:
        sys.stdout.write(found.schema.text.rstrip("\n") + "\n")
        return
    invocation.terminal.print_json(
        {
            "subject": found.subject,
            "version": found.version,
            "id": found.id,
            "schemaType": found.schema.type.value,
            "schema": found.schema.text,
            "references": [asdict(each) for each in found.schema.references],
        }
    )


@app.command()
def register(  # noqa: PLR0917 - Typer passes them by name
    context: typer.Context,
    subject: SubjectName,
    file: SchemaFile,
    references: References = None,
    normalize: Annotated[
        bool,
        typer.Option("--normalize", help="Treat schemas with the same meaning as the same."),
    ] = False,
    url: Url = "embedded",
    as_json: Json = False,
) -> None:
    """Register a schema and print its id; nothing changes if the subject already has it."""
    invocation = invocation_of(context)
    with _opened(invocation, url) as registry:
        schema = _read(file, references or [])
        made = registry.register(subject, schema, normalize=normalize)
    invocation.terminal.show({"subject": subject, "id": made}, str(made))


@app.command()
def check(  # noqa: PLR0917 - Typer passes them by name
    context: typer.Context,
    subject: SubjectName,
    file: SchemaFile,
    references: References = None,
    url: Url = "embedded",
    as_json: Json = False,
) -> None:
    """Check whether a schema could be registered. Exit code 1 if it could not."""
    invocation = invocation_of(context)
    with _opened(invocation, url) as registry:
        schema = _read(file, references or [])
        level = registry.compatibility(subject)
        found = registry.incompatibilities(subject, schema)
    lines = [f"{file} fits {subject} ({level})."]
    if found:
        lines = [f"{file} does not fit {subject} ({level}):", *(f"- {each}" for each in found)]
    shown = {"compatible": not found, "level": level, "messages": found}
    invocation.terminal.show(shown, *lines)
    if found:
        raise typer.Exit(1)


@app.command()
def delete(  # noqa: PLR0917 - Typer passes them by name
    context: typer.Context,
    subject: SubjectName,
    version: Annotated[
        int | None, typer.Option(min=1, help="The version; all by default.")
    ] = None,
    permanent: Annotated[
        bool,
        typer.Option("--permanent", help="Delete permanently; it must already be deleted."),
    ] = False,
    url: Url = "embedded",
    as_json: Json = False,
) -> None:
    """Delete a subject or one of its versions; it is hidden, but readable by its ids."""
    invocation = invocation_of(context)
    with _opened(invocation, url) as registry:
        if version is None:
            gone = registry.delete_subject(subject, permanent=permanent)
        else:
            gone = [registry.delete_version(subject, version, permanent=permanent)]
    line = f"{subject}: deleted {', '.join(map(str, gone))}"
    invocation.terminal.show({"subject": subject, "deleted": gone}, line)


@app.command()
def compatibility(  # noqa: PLR0917 - Typer passes them by name
    context: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(help="The subject; by default the whole registry.")
    ] = None,
    level: Annotated[
        str | None, typer.Option("--set", help="BACKWARD, FORWARD, FULL (_TRANSITIVE), NONE.")
    ] = None,
    unset: Annotated[
        bool, typer.Option("--unset", help="Reset to the registry's level, or to BACKWARD.")
    ] = False,
    url: Url = "embedded",
    as_json: Json = False,
) -> None:
    """Show or set the compatibility level."""
    invocation = invocation_of(context)
    with _opened(invocation, url) as registry:
        if level is not None or unset:
            registry.set_compatibility(subject, None if unset else level)
        found = registry.compatibility(subject)
    invocation.terminal.show({"subject": subject, "compatibility": found}, found)


def _opened(invocation: Invocation, url: str) -> closing[SchemaRegistryAdmin]:
    """Open the registry of a command, as a context manager."""
    from headrace_plugins.confluent.client import (
        EMBEDDED,
        URL_KEY,
        HttpSchemaRegistry,
        RegistrySettings,
    )
    from headrace_registry.embedded import open_embedded

    if url == EMBEDDED:
        # Without a Runtime, which would import Spark.
        return closing(open_embedded(invocation.settings.store_place))
    settings = invocation.settings
    password = settings.registry_ssl_client_key_password
    tls = {
        "ca.location": settings.registry_ssl_ca,
        "certificate.location": settings.registry_ssl_client_certificate,
        "key.location": settings.registry_ssl_client_key,
        "key.password": None if password is None else password.get_secret_value(),
    }
    values = {f"schema.registry.ssl.{name}": str(v) for name, v in tls.items() if v is not None}
    values |= {URL_KEY: url, "max.retries": "0"}
    secret = settings.registry_token
    if secret is not None and "@" not in url:
        values["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        values["bearer.auth.token"] = secret.get_secret_value()
    return closing(HttpSchemaRegistry(RegistrySettings.parsed(values)))


def _read(file: Path, references: list[str]) -> SchemaText:
    from headrace.sdk import ConfigError
    from headrace_plugins.confluent.schema_registry import SchemaText, SchemaType

    types = {".avsc": SchemaType.AVRO, ".proto": SchemaType.PROTOBUF, ".json": SchemaType.JSON}
    kind = types.get(file.suffix.lower())
    if kind is None:
        fix = f"Use one of the extensions: {', '.join(types)}."
        problem = f"Unknown schema language of file {file.name!r}."
        raise ConfigError(problem, field="FILE", fix=fix)
    return SchemaText(
        file.read_text(encoding="utf-8"), kind, tuple(map(_reference, references))
    )


def _reference(text: str) -> SchemaReference:
    from headrace.sdk import ConfigError
    from headrace_plugins.confluent.schema_registry import SchemaReference

    name, equals, rest = text.partition("=")
    subject, colon, version = rest.rpartition(":")
    if not (equals and colon and version.isdigit()):
        problem = f"Invalid reference {text!r}."
        fix = "Use NAME=SUBJECT:VERSION."
        raise ConfigError(problem, field="--reference", fix=fix)
    return SchemaReference(name, subject, int(version))
