"""Protobuf schemas: protoc compiles them, and the descriptors are compared.

The rules, and the names of the differences, are those of Confluent's Schema Registry:
docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-protobuf.html
Only differences that break compatibility are returned. Names of fields and enum constants may
change, as the wire format only contains numbers.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from typing_extensions import override

from headrace_plugins.confluent.protoc import compile_proto

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace_registry.model import ParsedSchema

_F = FieldDescriptorProto
_VARINT = "a varint"
_SCALARS: Mapping[int, str] = {
    **dict.fromkeys(
        (
            _F.TYPE_INT32,
            _F.TYPE_INT64,
            _F.TYPE_UINT32,
            _F.TYPE_UINT64,
            _F.TYPE_BOOL,
            _F.TYPE_ENUM,
        ),
        _VARINT,
    ),
    **dict.fromkeys((_F.TYPE_SINT32, _F.TYPE_SINT64), "a zigzag varint"),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES), "bytes"),
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32), "4 bytes"),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64), "8 bytes"),
    _F.TYPE_FLOAT: "a float",
    _F.TYPE_DOUBLE: "a double",
}
"""The wire format of each type: protobuf.dev/programming-guides/proto3/#updating."""


@dataclass(frozen=True)
class ProtoSchema:
    """See ParsedSchema."""

    text: str
    files: FileDescriptorSet

    @property
    def file(self) -> FileDescriptorProto:
        """The schema's own file."""
        return self.files.file[-1]

    @cached_property
    def identity(self) -> str:
        """See ParsedSchema. Independent of comments, layout and Base64."""
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()

    @property
    def normalized(self) -> str:
        """See ParsedSchema. The unchanged text, as `identity` leaves nothing to normalize."""
        return self.text

    def unreadable(self, written: ParsedSchema) -> Sequence[str]:
        assert isinstance(written, ProtoSchema)
        return [str(each) for each in differences(written.files, self.files)]


def parse_proto(text: str, references: Mapping[str, str]) -> ProtoSchema:
    """Parse a .proto file's text or a descriptor in Base64, with its imports by path.

    Raises InvalidSchemaError, and SetupError if protoc is missing.
    """
    compiled = FileDescriptorSet.FromString(compile_proto(text, references))
    return ProtoSchema(text, compiled)


@dataclass(frozen=True)
class Difference:
    """A difference that breaks compatibility, and its message or field."""

    name: str
    place: str

    @override
    def __str__(self) -> str:
        """Return the name and the place."""
        return f"{self.name} at {self.place}"


def differences(original: FileDescriptorSet, update: FileDescriptorSet) -> list[Difference]:
    """Return where the update's last file cannot read data of the original's last file."""
    before, after = original.file[-1], update.file[-1]
    found = []
    if before.package != after.package:
        found.append(Difference("PACKAGE_CHANGED", "#/"))
    comparison = _Comparison(_types(original), _types(update))
    return found + comparison.inside(
        (_prefix(before.package), before.message_type),
        (_prefix(after.package), after.message_type),
        "#/",
    )


@dataclass(frozen=True)
class _Message:
    """A message, with the syntax that determines its fields' labels."""

    descriptor: DescriptorProto
    proto3: bool
    package: str

    def label(self, of: FieldDescriptorProto) -> int | None:
        """Return the explicit label of a field; None if it has none."""
        if self.descriptor.options.map_entry:
            return None
        implicit = of.label == _F.LABEL_OPTIONAL and not of.proto3_optional
        return None if implicit and self.proto3 else of.label


def _types(files: FileDescriptorSet) -> Mapping[str, _Message]:
    """Return the messages of a file and of all its imports, by full name."""
    found = {}
    for file in files.file:
        package = _prefix(file.package)
        for name, message in _nested(package, file.message_type):
            found[name] = _Message(message, file.syntax == "proto3", package)
    return found


def _prefix(package: str) -> str:
    return f".{package}" if package else ""


def _nested(
    prefix: str, messages: Iterable[DescriptorProto]
) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{prefix}.{message.name}"
        yield name, message
        yield from _nested(name, message.nested_type)


_Inside: TypeAlias = tuple[str, "Iterable[DescriptorProto]"]
"""The full name of a file's package or a message, and the messages inside."""


@dataclass
class _Comparison:
    old: Mapping[str, _Message]
    new: Mapping[str, _Message]
    _seen: dict[tuple[str, str], list[Difference]] = field(default_factory=dict)

    def inside(self, before: _Inside, after: _Inside, place: str) -> list[Difference]:
        """Compare the messages inside a file or a message."""
        names = {each.name for each in after[1]}
        found = []
        for message in before[1]:
            where = f"{place}{message.name}"
            if message.options.map_entry:
                continue
            if message.name not in names:
                found.append(Difference("MESSAGE_REMOVED", where))
            else:
                pair = (f"{before[0]}.{message.name}", f"{after[0]}.{message.name}")
                found += self.message(*pair, where)
        return found

    def message(self, before: str, after: str, place: str) -> list[Difference]:
        """Compare two messages by their full names."""
        if (before, after) in self._seen:
            return self._seen[before, after]
        self._seen[before, after] = []  # ends the recursion for a recursive message
        old, new = self.old[before].descriptor, self.new[after].descriptor
        found = [*_removed(old, new, place), *_added(old, new, place)]
        found += _exclusive(old, new, place)
        newer = {each.number: each for each in new.field}
        for each in old.field:
            if each.number in newer:
                pair = ((self.old[before], each), (self.new[after], newer[each.number]))
                found += self.field(*pair, f"{place}/{each.number}")
        found += self.inside((before, old.nested_type), (after, new.nested_type), f"{place}/")
        self._seen[before, after] = found
        return found

    def field(
        self,
        before: tuple[_Message, FieldDescriptorProto],
        after: tuple[_Message, FieldDescriptorProto],
        place: str,
    ) -> list[Difference]:
        """Compare two fields, each with its message."""
        old, new = before[1], after[1]
        scalars = (_SCALARS.get(old.type), _SCALARS.get(new.type))
        maps = (_map(self.old, old), _map(self.new, new))
        if None not in scalars:
            labels = (before[0].label(old), after[0].label(new))
            return _scalar_differences(scalars, labels, place)
        if scalars != (None, None) or (maps[0] is None) != (maps[1] is None):
            return [Difference("FIELD_KIND_CHANGED", place)]
        if maps[0] is None or maps[1] is None:
            return self._named(old.type_name, new.type_name, place)
        entries = zip(maps[0].descriptor.field, maps[1].descriptor.field, strict=True)
        return [
            each
            for key, value in entries
            for each in self.field((maps[0], key), (maps[1], value), place)
        ]

    def _named(self, old: str, new: str, place: str) -> list[Difference]:
        """Compare the message types of two fields."""
        names = (
            old.removeprefix(self.old[old].package),
            new.removeprefix(self.new[new].package),
        )
        if names[0] != names[1]:
            return [Difference("FIELD_NAMED_TYPE_CHANGED", place)]
        found = self.message(old, new, f"#/{names[0].strip('.')}")
        return [*found, Difference("FIELD_NAMED_TYPE_CHANGED", place)] if found else []


def _map(types: Mapping[str, _Message], of: FieldDescriptorProto) -> _Message | None:
    """Return the message of a map's entries, None if the field is not a map."""
    found = types.get(of.type_name)
    return found if found is not None and found.descriptor.options.map_entry else None


def _scalar_differences(
    scalars: tuple[str | None, str | None], labels: tuple[int | None, int | None], place: str
) -> list[Difference]:
    if scalars[0] != scalars[1]:
        return [Difference("FIELD_SCALAR_KIND_CHANGED", place)]
    relabelled = None not in labels and labels[0] != labels[1]
    # A repeated number may be packed; of a repeated string, the last value is read.
    if relabelled and scalars[0] != "bytes":
        return [Difference("FIELD_NUMERIC_LABEL_CHANGED", place)]
    return []


def _oneofs(message: DescriptorProto) -> dict[int, str]:
    """Return the oneof of each field in a oneof, without the synthetic ones of optional."""
    return {
        each.number: message.oneof_decl[each.oneof_index].name
        for each in message.field
        if each.HasField("oneof_index") and not each.proto3_optional
    }


def _removed(before: DescriptorProto, after: DescriptorProto, place: str) -> list[Difference]:
    left = {each.number for each in after.field}
    oneofs, later = _oneofs(before), set(_oneofs(after).values())
    found = []
    for each in before.field:
        if each.number in left:
            continue
        where = f"{place}/{each.number}"
        oneof = oneofs.get(each.number)
        if each.label == _F.LABEL_REQUIRED:
            found.append(Difference("REQUIRED_FIELD_REMOVED", where))
        elif oneof is not None and not _gone(oneof, oneofs, later, left):
            found.append(Difference("ONEOF_FIELD_REMOVED", f"{place}/{oneof}/{each.number}"))
    return found


def _gone(oneof: str, oneofs: Mapping[int, str], later: set[str], left: set[int]) -> bool:
    """Return whether a oneof was removed with all its fields."""
    members = {number for number, name in oneofs.items() if name == oneof}
    return oneof not in later and not members & left


def _added(before: DescriptorProto, after: DescriptorProto, place: str) -> list[Difference]:
    known = {each.number for each in before.field}
    return [
        Difference("REQUIRED_FIELD_ADDED", f"{place}/{each.number}")
        for each in after.field
        if each.number not in known and each.label == _F.LABEL_REQUIRED
    ]


def _exclusive(before: DescriptorProto, after: DescriptorProto, place: str) -> list[Difference]:
    """Return the oneofs that now contain fields which could be set together before."""
    known = {each.number for each in before.field}
    was, now = _oneofs(before), _oneofs(after)
    found = []
    for oneof in dict.fromkeys(now.values()):
        members = [number for number, name in now.items() if name == oneof and number in known]
        groups = {was.get(number, number) for number in members}
        if len(groups) > 1:
            moved = sum(number not in was for number in members)
            name = "MULTIPLE_FIELDS_MOVED_TO" if moved > 1 else "FIELD_MOVED_TO_EXISTING"
            found.append(Difference(f"{name}_ONEOF", f"{place}/{oneof}"))
    return found
