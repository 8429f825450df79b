"""Confluent's Schema Registry API, version 1.

docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import structlog
from fastapi import APIRouter, Body, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from headrace import __version__
from headrace.rest import Encoded, Listener, add_errors, behind, needs_admin_to_change
from headrace.sdk import ConfigError, HeadraceError
from headrace_plugins.confluent.schema_registry import (
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaReference,
    SchemaRegistryError,
    SchemaText,
    SchemaType,
)
from headrace_registry.model import Found, Listing, StoredSchema, Submitted
from headrace_registry.service import RegistryService
from headrace_registry.subjects import Config

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = structlog.get_logger(__name__)

Json: TypeAlias = Any
ALL = -1
"""The value that clients send for a list without a limit."""
_STORE_ERROR = 50001
_UNAUTHORIZED = 401
_UNAUTHORIZED_CODE = 40101
_NEXT = {None, -1, 0}
"""The values that clients send for an id or a version that the registry should choose."""

Number = Annotated[int, Field(ge=-1, le=2**31 - 1)]


def registry_app(registry: RegistryService, listener: Listener) -> "ASGIApp":
    """Return the API of a registry, behind a listener's checks."""
    app = FastAPI(
        title="Headrace schema registry",
        version=__version__,
        default_response_class=RegistryJson,
        openapi_url=None,
    )
    add_errors(app, RegistryErrors())
    for routes in (_subjects, _versions, _schemas, _compatibility, _config, _mode, _about):
        app.include_router(routes(registry))
    return behind(app, listener, refusal, needs_admin_to_change)


def _page(offset: Annotated[int, Query(ge=0)] = 0, limit: int = ALL) -> slice:
    return slice(offset, None if limit < 0 else offset + limit)


Page = Annotated[slice, Depends(_page)]
Form = Annotated[str, Query(alias="format")]
Inherited = Annotated[bool, Query(alias="defaultToGlobal")]
ConfigBody = Annotated[dict[str, Any], Body()]


def _subjects(registry: RegistryService) -> APIRouter:
    router = APIRouter(prefix="/subjects")

    @router.get("")
    def list_subjects(
        page: Page,
        prefix: Annotated[str, Query(alias="subjectPrefix")] = "",
        *,
        deleted: bool = False,
        only_deleted: Annotated[bool, Query(alias="deletedOnly")] = False,
    ) -> Json:
        listing = Listing(prefix, deleted=deleted, only_deleted=only_deleted)
        return registry.subjects(listing)[page]

    @router.post("/{subject}")
    def lookup(
        subject: Encoded, body: SchemaBody, *, normalize: bool = False, deleted: bool = False
    ) -> Json:
        schema = body.submitted()
        found = registry.lookup(subject, schema, normalize=normalize, deleted=deleted)
        return found_json(found)

    @router.delete("/{subject}")
    def delete_subject(subject: Encoded, *, permanent: bool = False) -> Json:
        return registry.delete_subject(subject, permanent=permanent)

    return router


def _versions(registry: RegistryService) -> APIRouter:
    router = APIRouter(prefix="/subjects/{subject}/versions")

    @router.get("")
    def list_versions(
        subject: Encoded,
        page: Page,
        *,
        deleted: bool = False,
        only_deleted: Annotated[bool, Query(alias="deletedOnly")] = False,
    ) -> Json:
        listing = Listing(deleted=deleted, only_deleted=only_deleted)
        return registry.versions(subject, listing)[page]

    @router.post("")
    def register(subject: Encoded, body: SchemaBody, *, normalize: bool = False) -> Json:
        found = registry.register(subject, body.submitted(), normalize=normalize)
        # Without the text: Confluent's Python client would cache it, in any form, as the form
        # that its deserializers request.
        return {"id": found.stored.id, "version": found.version.version}

    @router.get("/{version}")
    def show(subject: Encoded, version: str, form: Form = "", *, deleted: bool = False) -> Json:
        return found_json(registry.version(subject, version, deleted=deleted, form=form))

    @router.get("/{version}/schema")
    def show_text(
        subject: Encoded, version: str, form: Form = "", *, deleted: bool = False
    ) -> Response:
        found = registry.version(subject, version, deleted=deleted, form=form)
        return Response(found.text, media_type=RegistryJson.media_type)

    @router.get("/{version}/referencedby")
    def users(subject: Encoded, version: str, page: Page) -> Json:
        return registry.users(subject, version)[page]

    @router.delete("/{version}")
    def delete_version(subject: Encoded, version: str, *, permanent: bool = False) -> Json:
        return registry.delete_version(subject, version, permanent=permanent)

    return router


def _schemas(registry: RegistryService) -> APIRouter:
    router = APIRouter(prefix="/schemas")

    @router.get("")
    def list_schemas(
        page: Page,
        prefix: Annotated[str, Query(alias="subjectPrefix")] = "",
        *,
        deleted: bool = False,
        latest_only: Annotated[bool, Query(alias="latestOnly")] = False,
    ) -> Json:
        listing = Listing(prefix, deleted=deleted)
        found = registry.schemas(listing, latest_only=latest_only)
        return [found_json(each) for each in found[page]]

    @router.get("/types")
    def types() -> Json:
        return ["JSON", "PROTOBUF", "AVRO"]

    @router.get("/ids/{schema_id}")
    def by_id(schema_id: int, form: Form = "") -> Json:
        return schema_json(*registry.by_id(schema_id, form))

    @router.get("/ids/{schema_id}/schema")
    def text_by_id(schema_id: int, form: Form = "") -> Response:
        _, text = registry.by_id(schema_id, form)
        return Response(text, media_type=RegistryJson.media_type)

    @router.get("/ids/{schema_id}/subjects")
    def subjects_by_id(schema_id: int, page: Page, *, deleted: bool = False) -> Json:
        found = registry.versions_by_id(schema_id, deleted=deleted)
        return list(dict.fromkeys(each.subject for each in found))[page]

    @router.get("/ids/{schema_id}/versions")
    def versions_by_id(schema_id: int, page: Page, *, deleted: bool = False) -> Json:
        found = registry.versions_by_id(schema_id, deleted=deleted)
        return [{"subject": each.subject, "version": each.version} for each in found[page]]

    return router


def _compatibility(registry: RegistryService) -> APIRouter:
    router = APIRouter(prefix="/compatibility/subjects/{subject}/versions")

    @router.post("")
    def check(
        subject: Encoded, body: SchemaBody, *, normalize: bool = False, verbose: bool = False
    ) -> Json:
        found = registry.incompatibilities(subject, body.submitted(), normalize=normalize)
        return _fit(found, verbose=verbose)

    @router.post("/{version}")
    def check_version(
        subject: Encoded,
        version: str,
        body: SchemaBody,
        *,
        normalize: bool = False,
        verbose: bool = False,
    ) -> Json:
        schema = body.submitted()
        found = registry.incompatibilities(subject, schema, version, normalize=normalize)
        return _fit(found, verbose=verbose)

    return router


def _fit(found: list[str], *, verbose: bool) -> Json:
    return {"is_compatible": not found, **({"messages": found} if verbose else {})}


def _config(registry: RegistryService) -> APIRouter:
    router = APIRouter(prefix="/config")

    def _set(subject: str | None, body: dict[str, Any]) -> Json:
        config = Config.from_json(body)
        registry.set_config(subject, config)
        return config.to_json("compatibility")

    @router.get("")
    def config() -> Json:
        return registry.config(None).to_json()

    @router.put("")
    def set_config(body: ConfigBody) -> Json:
        return _set(None, body)

    @router.delete("")
    def drop_config() -> Json:
        return registry.drop_config(None).to_json()

    @router.get("/{subject}")
    def subject_config(subject: Encoded, inherited: Inherited = False) -> Json:  # noqa: FBT002 - a query
        return registry.config(subject, inherited=inherited).to_json()

    @router.put("/{subject}")
    def set_subject_config(subject: Encoded, body: ConfigBody) -> Json:
        return _set(subject, body)

    @router.delete("/{subject}")
    def drop_subject_config(subject: Encoded) -> Json:
        return registry.drop_config(subject).to_json()

    return router


def _mode(_: RegistryService) -> APIRouter:
    router = APIRouter(prefix="/mode")

    @router.get("")
    @router.get("/{subject}")
    def mode() -> Json:
        # Clients request it before they register; there is no other mode.
        return {"mode": "READWRITE"}

    return router


def _about(registry: RegistryService) -> APIRouter:
    router = APIRouter()

    @router.get("/")
    def root() -> Json:
        return {}

    @router.get("/v1/metadata/version")
    def version() -> Json:
        return {"version": __version__, "commitId": ""}

    return router


def _empty_if_null(value: object) -> object:
    return () if value is None else value


class ReferenceBody(BaseModel):
    """A reference to another schema."""

    name: str
    subject: str
    version: Number


class SchemaBody(BaseModel):
    """A schema in a client's request."""

    model_config = ConfigDict(populate_by_name=True)

    text: str | None = Field(default=None, alias="schema")
    language: str | None = Field(default=None, alias="schemaType")
    references: Annotated[tuple[ReferenceBody, ...], BeforeValidator(_empty_if_null)] = ()
    metadata: dict[str, Any] | None = None
    rules: dict[str, Any] | None = Field(default=None, alias="ruleSet")
    id: Number | None = None
    version: Number | None = None

    def submitted(self) -> Submitted:
        """Return the schema for the registry.

        Raises InvalidSchemaError, and RegistryRefusedError if the client sets an id or version.
        """
        if self.id not in _NEXT or self.version not in _NEXT:
            problem = "The registry chooses the ids and versions of schemas itself."
            raise RegistryRefusedError(problem, fix="Remove id and version.")
        try:
            self.model_dump_json()
        except ValueError:
            problem = "The schema contains an unpaired surrogate."
            raise InvalidSchemaError(problem) from None
        language = self.language or SchemaType.AVRO.value
        if language not in list(SchemaType):
            problem = f"Invalid schema type {language}"
            fix = f"Use one of: {', '.join(SchemaType)}."
            raise InvalidSchemaError(problem, fix=fix)
        references = tuple(
            SchemaReference(each.name, each.subject, each.version) for each in self.references
        )
        both = {"metadata": self.metadata, "ruleSet": self.rules}
        extras = {key: value for key, value in both.items() if value}
        return Submitted(
            SchemaText(self.text or "", SchemaType(language), references),
            json.dumps(extras, sort_keys=True) if extras else "",
        )


def schema_json(stored: StoredSchema, text: str) -> dict[str, Any]:
    """Return a schema as JSON for the API, without its subject."""
    value: dict[str, Any] = {"schema": text}
    if stored.schema.type is not SchemaType.AVRO:
        value["schemaType"] = stored.schema.type.value
    if stored.schema.references:
        value["references"] = [asdict(each) for each in stored.schema.references]
    return {**value, **(json.loads(stored.extras) if stored.extras else {})}


def found_json(found: Found) -> dict[str, Any]:
    """Return a version of a subject as JSON for the API."""
    version = found.version
    value = {
        "subject": version.subject,
        "version": version.version,
        "id": found.stored.id,
        **schema_json(found.stored, found.text),
    }
    return {**value, "deleted": True} if version.deleted else value


class RegistryJson(JSONResponse):
    """JSON with the registry's own media type."""

    media_type = "application/vnd.schemaregistry.v1+json"


class RegistryErrors:
    """Returns errors in the format of Confluent's registry."""

    def failed(self, _: Request, error: HeadraceError) -> RegistryJson:
        if isinstance(error, SchemaRegistryError):
            return _answer(error.status, error.error_code, error.problem)
        text = " ".join(part for part in (error.problem, error.fix) if part)
        status = 422 if isinstance(error, ConfigError) else 500
        return _answer(status, status, text)

    def invalid(self, _: Request, error: RequestValidationError) -> RegistryJson:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        status = 400 if first["type"] == "json_invalid" else 422
        return _answer(status, status, f"{where}: {first['msg']}" if where else first["msg"])

    def refused(self, _: Request, error: HTTPException) -> RegistryJson:
        return _answer(error.status_code, error.status_code, f"HTTP {error.detail}")

    def broken(self, _: Request, problem: str) -> RegistryJson:
        return _answer(500, _STORE_ERROR, problem)


def _answer(status: int, error_code: int, message: str) -> RegistryJson:
    return RegistryJson({"error_code": error_code, "message": message}, status_code=status)


def refusal(_: str, status: int, message: str, headers: Mapping[str, str]) -> RegistryJson:
    """Reject a request before it is read, see Refuse."""
    code = _UNAUTHORIZED_CODE if status == _UNAUTHORIZED else status
    return RegistryJson({"error_code": code, "message": message}, status, dict(headers))
