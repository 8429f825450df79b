"""The schema registry's rows in plain memory: for tests and throw-away registries."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.model import DEFAULT_CONTEXT, StoredSchema, Subject, SubjectVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sdk.schemaregistry import SchemaText
    from headrace.store.registry_protocol import RegistryRows, RegistrySetting


@dataclass
class _Rows:
    """See RegistryRows. A copy of it is what a failed transaction goes back to."""

    schemas: dict[tuple[str, int], StoredSchema] = field(default_factory=dict)
    found: dict[tuple[Subject, int], SubjectVersion] = field(default_factory=dict)
    settings: dict[tuple[str, str], str] = field(default_factory=dict)
    last_ids: dict[str, int] = field(default_factory=dict)

    def copied(self) -> _Rows:
        return replace(
            self,
            schemas=dict(self.schemas),
            found=dict(self.found),
            settings=dict(self.settings),
            last_ids=dict(self.last_ids),
        )

    def subjects(self) -> Sequence[tuple[Subject, bool]]:
        active: dict[Subject, bool] = {}
        for each in self.found.values():
            active[each.subject] = active.get(each.subject, False) or not each.deleted
        return sorted(active.items(), key=lambda item: (item[0].context, item[0].name))

    def versions(self, subject: Subject) -> Sequence[SubjectVersion]:
        return self._sorted(each for each in self.found.values() if each.subject == subject)

    def versions_of(self, context: str, schema_id: int) -> Sequence[SubjectVersion]:
        return self._sorted(
            each
            for each in self.found.values()
            if (each.subject.context, each.schema_id) == (context, schema_id)
        )

    def users(self, subject: Subject, version: int) -> Sequence[SubjectVersion]:
        return self._sorted(
            each
            for each in self.found.values()
            if any(
                (reference.subject, reference.version) == (str(subject), version)
                for reference in self._schema_of(each).references
            )
        )

    def schema(self, context: str, schema_id: int) -> StoredSchema | None:
        return self.schemas.get((context, schema_id))

    def find(self, context: str, guid: str) -> int | None:
        for each in self.schemas.values():
            if (each.context, each.guid) == (context, guid):
                return each.id
        return None

    def by_guid(self, guid: str) -> StoredSchema | None:
        return next((each for each in self.schemas.values() if each.guid == guid), None)

    def contexts(self) -> Sequence[str]:
        return sorted({DEFAULT_CONTEXT, *self.last_ids})

    def setting(self, kind: RegistrySetting, scope: str) -> str | None:
        return self.settings.get((kind, scope))

    def add_schema(
        self, context: str, guid: str, schema: SchemaText, extras: str, schema_id: int | None
    ) -> int:
        last = self.last_ids.get(context, 0)
        made = last + 1 if schema_id is None else schema_id
        self.last_ids[context] = max(last, made)
        self.schemas[context, made] = StoredSchema(context, made, guid, schema, extras)
        return made

    def remove_schema(self, context: str, schema_id: int) -> None:
        self.schemas.pop((context, schema_id), None)

    def put_version(self, version: SubjectVersion) -> None:
        self.found[version.subject, version.version] = version

    def remove_version(self, version: SubjectVersion) -> None:
        self.found.pop((version.subject, version.version), None)

    def put_setting(self, kind: RegistrySetting, scope: str, value: str | None) -> None:
        if value is None:
            self.settings.pop((kind, scope), None)
        else:
            self.settings[kind, scope] = value

    def _schema_of(self, version: SubjectVersion) -> SchemaText:
        return self.schemas[version.subject.context, version.schema_id].schema

    @staticmethod
    def _sorted(found: Iterator[SubjectVersion]) -> Sequence[SubjectVersion]:
        return sorted(
            found, key=lambda each: (each.subject.context, each.subject.name, each.version)
        )


class MemoryRegistryStore:
    """A RegistryStore that forgets everything when the process ends."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.RLock()
        self._rows = _Rows()

    @contextmanager
    def read(self) -> Iterator[RegistryRows]:
        """See RegistryStore."""
        with self._lock:
            yield self._rows.copied()

    @contextmanager
    def write(self) -> Iterator[RegistryRows]:
        """See RegistryStore."""
        with self._lock:
            changed = self._rows.copied()
            yield changed
            self._rows = changed

    def close(self) -> None:
        """See RegistryStore."""
