"""Confluent's Schema Registry API, version 1.

docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from fastapi import APIRouter, Body, Depends, FastAPI, Query, Response

from headrace import __version__
from headrace.rest.door import Door
from headrace.rest.guard import behind, needs_admin_to_change
from headrace.rest.registry_answers import RegistryJson, add_error_handlers, refusal
from headrace.rest.registry_bodies import SchemaBody, found_json, schema_json
from headrace.rest.requests import Encoded
from headrace.schemaregistry import Config, Listing, RegistryService

if TYPE_CHECKING:
    from starlette.types import ASGIApp

Json: TypeAlias = Any
ALL = -1
"""How clients ask for a list without a limit."""


def registry_app(registry: RegistryService, door: Door) -> "ASGIApp":
    """Return the API over a registry, behind a door."""
    app = FastAPI(
        title="Headrace schema registry",
        version=__version__,
        default_response_class=RegistryJson,
        openapi_url=None,
    )
    add_error_handlers(app)
    for routes in (_subjects, _versions, _schemas, _compatibility, _config, _mode, _about):
        app.include_router(routes(registry))
    return behind(app, door, refusal, needs_admin_to_change)


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
        given = body.submitted()
        found = registry.lookup(subject, given, normalize=normalize, deleted=deleted)
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
        # Not the text: Confluent's Python client would keep it, in whatever form, as the one
        # that its deserializers ask for.
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
        found = registry.misfits(subject, body.submitted(), normalize=normalize)
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
        given = body.submitted()
        found = registry.misfits(subject, given, version, normalize=normalize)
        return _fit(found, verbose=verbose)

    return router


def _fit(found: list[str], *, verbose: bool) -> Json:
    return {"is_compatible": not found, **({"messages": found} if verbose else {})}


def _config(registry: RegistryService) -> APIRouter:
    router = APIRouter(prefix="/config")

    @router.get("")
    def config() -> Json:
        return registry.config(None).to_json()

    @router.put("")
    def set_config(body: ConfigBody) -> Json:
        given = Config.from_json(body)
        registry.set_config(None, given)
        return given.to_json("compatibility")

    @router.delete("")
    def drop_config() -> Json:
        return registry.drop_config(None).to_json()

    @router.get("/{subject}")
    def subject_config(subject: Encoded, inherited: Inherited = False) -> Json:  # noqa: FBT002 - a query
        return registry.config(subject, inherited=inherited).to_json()

    @router.put("/{subject}")
    def set_subject_config(subject: Encoded, body: ConfigBody) -> Json:
        given = Config.from_json(body)
        registry.set_config(subject, given)
        return given.to_json("compatibility")

    @router.delete("/{subject}")
    def drop_subject_config(subject: Encoded) -> Json:
        return registry.drop_config(subject).to_json()

    return router


def _mode(_: RegistryService) -> APIRouter:
    router = APIRouter(prefix="/mode")

    @router.get("")
    @router.get("/{subject}")
    def mode() -> Json:
        # Clients ask before they register; there is no other mode.
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
