"""A client of Confluent's Schema Registry and of those that speak as it does."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from typing_extensions import override

from headrace.sdk.schemaregistry.errors import IncompatibleSchemaError, SchemaNotFoundError
from headrace.sdk.schemaregistry.schema import (
    RegisteredSchema,
    SchemaReference,
    SchemaText,
    SchemaType,
)
from headrace.sdk.schemaregistry.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.sdk.schemaregistry.address import Address

__all__ = ["HttpSchemaRegistry"]

_KEPT = 10_000
"""How many answers are kept of each kind; a registry rarely has more schemas in use."""
_K = TypeVar("_K")
_V = TypeVar("_V")
_DELETED = {"deleted": "true"}
_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND = 40401, 40402


class HttpSchemaRegistry:
    """A SchemaRegistryAdmin over HTTP. See `SchemaRegistry` for what each method does.

    Ids and versions never change, so they are asked for once; the newest version of a subject
    is remembered for as long as the address says.

    Args:
        address: The registry.
        clock: Seconds that only grow; given by tests.
    """

    def __init__(self, address: Address, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._transport = Transport(address)
        self._lock = threading.Lock()
        self._ids: dict[tuple[int, str | None], SchemaText] = {}
        self._registered: dict[tuple[str, SchemaText, bool], int] = {}
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}
        self._latest: dict[str, tuple[float, RegisteredSchema]] = {}

    @override
    def __getstate__(self) -> Address:
        """Leave connections, locks and answers behind."""
        return self._address

    def __setstate__(self, address: Address) -> None:
        """Start anew where the pickle arrived."""
        HttpSchemaRegistry.__init__(self, address)

    def register(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> int:
        """See `SchemaRegistry`."""
        key = (subject, schema, normalize)
        known = self._registered.get(key)
        if known is not None:
            return known
        answer = self._send(
            "POST", f"/subjects/{_part(subject)}/versions", schema, _flag(normalize)
        )
        made = int(answer["id"])
        self._keep(self._registered, key, made)
        with self._lock:
            self._latest.pop(subject, None)
        return made

    def lookup(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> RegisteredSchema:
        """See `SchemaRegistry`."""
        answer = self._send("POST", f"/subjects/{_part(subject)}", schema, _flag(normalize))
        return _registered(answer)

    def by_id(self, schema_id: int, *, subject: str | None = None) -> SchemaText:
        """See `SchemaRegistry`."""
        key = (schema_id, subject)
        known = self._ids.get(key)
        if known is not None:
            return known
        query = None if subject is None else {"subject": subject}
        found = _text(self._get(f"/schemas/ids/{schema_id}", query))
        self._keep(self._ids, key, found)
        return found

    def latest(self, subject: str) -> RegisteredSchema:
        """See `SchemaRegistry`."""
        kept = self._latest.get(subject)
        now = self._clock()
        if kept is not None and now < kept[0]:
            return kept[1]
        found = _registered(self._get(f"/subjects/{_part(subject)}/versions/latest"))
        until = now + self._address.latest_for.total_seconds()
        self._keep(self._latest, subject, (until, found))
        return found

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """See `SchemaRegistry`."""
        key = (subject, version)
        known = self._versions.get(key)
        if known is not None:
            return known
        path = f"/subjects/{_part(subject)}/versions/{version}"
        found = _registered(self._get(path, _DELETED))
        self._keep(self._versions, key, found)
        return found

    def versions(self, subject: str) -> list[int]:
        """See `SchemaRegistry`."""
        return [int(each) for each in self._get(f"/subjects/{_part(subject)}/versions")]

    def all_versions(self, subject: str) -> list[int]:
        """See `SchemaRegistryAdmin`."""
        found = self._get(f"/subjects/{_part(subject)}/versions", _DELETED)
        return [int(each) for each in found]

    def subjects(self) -> list[str]:
        """See `SchemaRegistry`."""
        return [str(each) for each in self._get("/subjects")]

    def all_subjects(self) -> list[str]:
        """See `SchemaRegistryAdmin`."""
        return [str(each) for each in self._get("/subjects", _DELETED)]

    def incompatibilities(self, subject: str, schema: SchemaText) -> list[str]:
        """See `SchemaRegistry`."""
        path = f"/compatibility/subjects/{_part(subject)}/versions"
        try:
            answer = self._send("POST", path, schema, {"verbose": "true"})
        except IncompatibleSchemaError as error:
            return list(error.reasons) or [error.problem]
        except SchemaNotFoundError as error:
            if error.error_code in {_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND}:
                return []
            raise
        if answer.get("is_compatible", False):
            return []
        reasons = [str(message) for message in answer.get("messages") or []]
        return reasons or ["The schema is incompatible with an earlier version."]

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """See `SchemaRegistryAdmin`."""
        answer = self._delete(f"/subjects/{_part(subject)}", permanent=permanent)
        return [int(each) for each in answer]

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """See `SchemaRegistryAdmin`."""
        path = f"/subjects/{_part(subject)}/versions/{version}"
        return int(self._delete(path, permanent=permanent))

    def compatibility(self, subject: str | None) -> str:
        """See `SchemaRegistryAdmin`."""
        answer = self._get(_config(subject), {"defaultToGlobal": "true"})
        return str(answer["compatibilityLevel"])

    def set_compatibility(self, subject: str | None, level: str | None) -> None:
        """See `SchemaRegistryAdmin`."""
        if level is None:
            self._transport.send("DELETE", _config(subject))
        else:
            self._transport.send("PUT", _config(subject), body={"compatibility": level})

    def close(self) -> None:
        """See `SchemaRegistry`."""
        self._transport.close()

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        return self._transport.send("GET", path, query=query)

    def _send(
        self, method: str, path: str, schema: SchemaText, query: Mapping[str, str]
    ) -> Any:
        return self._transport.send(method, path, body=_body(schema), query=query)

    def _delete(self, path: str, *, permanent: bool) -> Any:
        query = {"permanent": "true"} if permanent else None
        answer = self._transport.send("DELETE", path, query=query)
        with self._lock:
            for kept in (self._ids, self._registered, self._versions, self._latest):
                kept.clear()
        return answer

    def _keep(self, kept: dict[_K, _V], key: _K, value: _V) -> None:
        with self._lock:
            if len(kept) >= _KEPT:
                kept.clear()
            kept[key] = value


def _part(text: str) -> str:
    return quote(text, safe="")


def _flag(normalize: bool) -> dict[str, str]:  # noqa: FBT001 - one flag of a private name
    return {"normalize": "true"} if normalize else {}


def _config(subject: str | None) -> str:
    return "/config" if subject is None else f"/config/{_part(subject)}"


def _body(schema: SchemaText) -> dict[str, object]:
    body: dict[str, object] = {"schema": schema.text}
    if schema.type is not SchemaType.AVRO:
        body["schemaType"] = schema.type.value
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    return body


def _text(answer: Mapping[str, Any]) -> SchemaText:
    references = tuple(
        SchemaReference(each["name"], each["subject"], int(each["version"]))
        for each in answer.get("references") or ()
    )
    kind = SchemaType(answer.get("schemaType") or "AVRO")
    return SchemaText(str(answer["schema"]), kind, references)


def _registered(answer: Mapping[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(
        str(answer["subject"]), int(answer["version"]), int(answer["id"]), _text(answer)
    )
