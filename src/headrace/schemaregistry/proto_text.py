"""Writes a Protobuf descriptor as the .proto file it could have come from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FileDescriptorProto,
        ServiceDescriptorProto,
    )
    from google.protobuf.message import Message

_F = FieldDescriptorProto
_LABELS = {_F.LABEL_REQUIRED: "required ", _F.LABEL_REPEATED: "repeated "}
_QUOTED = {_F.TYPE_STRING, _F.TYPE_BYTES}


def proto_text(file: FileDescriptorProto) -> str:
    """Return the text of a file, without comments and without options of its users' own."""
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    lines += _imports(file)
    lines += [f"option {option};" for option in _options(file.options)]
    for enum in file.enum_type:
        lines += ["", *_enum(enum)]
    for message in file.message_type:
        lines += ["", *_message(message, file.syntax == "proto3")]
    lines += _extensions(file.extension, file.syntax == "proto3")
    for service in file.service:
        lines += ["", *_service(service)]
    return "\n".join(lines) + "\n"


def _imports(file: FileDescriptorProto) -> Iterator[str]:
    for index, path in enumerate(file.dependency):
        public = "public " if index in file.public_dependency else ""
        weak = "weak " if index in file.weak_dependency else ""
        yield f'import {public}{weak}"{path}";'


def _options(options: Message) -> list[str]:
    found = []
    for field, value in options.ListFields():
        if field.is_extension or field.message_type is not None:
            continue
        values = value if field.is_repeated else [value]
        for each in values:
            if field.enum_type is not None:
                shown = field.enum_type.values_by_number[each].name
            else:
                shown = json.dumps(each, ensure_ascii=False)
            found.append(f"{field.name} = {shown}")
    return found


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else line for line in lines]


def _block(head: str, lines: Sequence[str]) -> list[str]:
    return [f"{head} {{", *_indented(lines), "}"]


def _enum(enum: EnumDescriptorProto) -> list[str]:
    lines = [f"option {option};" for option in _options(enum.options)]
    lines += [
        f"{value.name} = {value.number}{_bracketed(_options(value.options))};"
        for value in enum.value
    ]
    ranges = [(each.start, each.end) for each in enum.reserved_range]
    lines += _reserved(ranges, enum.reserved_name)
    return _block(f"enum {enum.name}", lines)


def _message(message: DescriptorProto, proto3: bool) -> list[str]:  # noqa: FBT001 - two forms
    lines = [f"option {option};" for option in _options(message.options)]
    lines += _reserved(
        [(each.start, each.end - 1) for each in message.reserved_range], message.reserved_name
    )
    for extension in message.extension_range:
        lines.append(f"extensions {_range(extension.start, extension.end - 1)};")
    maps = {each.name: each for each in message.nested_type if each.options.map_entry}
    groups = {each.type_name.split(".")[-1] for each in message.field if _is_group(each)}
    lines += _fields(message, maps, proto3)
    lines += _extensions(message.extension, proto3)
    for enum in message.enum_type:
        lines += _enum(enum)
    for nested in message.nested_type:
        if nested.name not in maps and nested.name not in groups:
            lines += _message(nested, proto3)
    return _block(f"message {message.name}", lines)


def _is_group(field: FieldDescriptorProto) -> bool:
    return field.type == _F.TYPE_GROUP


def _fields(
    message: DescriptorProto,
    maps: dict[str, DescriptorProto],
    proto3: bool,  # noqa: FBT001 - two forms
) -> list[str]:
    lines: list[str] = []
    written: set[int] = set()
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            lines += _field(field, message, maps, proto3)
        elif field.oneof_index not in written:
            written.add(field.oneof_index)
            members = [
                line
                for each in message.field
                if each.HasField("oneof_index") and each.oneof_index == field.oneof_index
                for line in _field(each, message, maps, proto3, labelled=False)
            ]
            lines += _block(f"oneof {message.oneof_decl[field.oneof_index].name}", members)
    return lines


def _field(
    field: FieldDescriptorProto,
    message: DescriptorProto | None,
    maps: dict[str, DescriptorProto],
    proto3: bool,  # noqa: FBT001 - two forms
    *,
    labelled: bool = True,
) -> list[str]:
    options = _options(field.options)
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.insert(0, f'json_name = "{field.json_name}"')
    if field.HasField("default_value"):
        options.insert(0, f"default = {_default(field)}")
    tail = f"{field.name} = {field.number}{_bracketed(options)};"
    entry = maps.get(field.type_name.split(".")[-1]) if field.type_name else None
    if entry is not None:
        key, value = (_type(each) for each in entry.field)
        return [f"map<{key}, {value}> {tail}"]
    label = _label(field, proto3) if labelled else ""
    if _is_group(field) and message is not None:
        name = field.type_name.split(".")[-1]
        group = next(each for each in message.nested_type if each.name == name)
        return _block(f"{label}group {name} = {field.number}", _message(group, proto3)[1:-1])
    return [f"{label}{_type(field)} {tail}"]


def _label(field: FieldDescriptorProto, proto3: bool) -> str:  # noqa: FBT001 - two forms
    if field.label in _LABELS:
        return _LABELS[field.label]
    return "" if proto3 and not field.proto3_optional else "optional "


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or _F.Type.Name(field.type).removeprefix("TYPE_").lower()


def _default(field: FieldDescriptorProto) -> str:
    if field.type == _F.TYPE_BYTES:
        return f'"{field.default_value}"'  # protoc has escaped it
    return json.dumps(field.default_value) if field.type in _QUOTED else field.default_value


def _json_name(name: str) -> str:
    """Return the name in JSON that a field has without asking: protoc's own rule."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _bracketed(options: Sequence[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _range(first: int, last: int) -> str:
    if last >= (1 << 29) - 1:
        return f"{first} to max"
    return str(first) if first == last else f"{first} to {last}"


def _reserved(ranges: Sequence[tuple[int, int]], names: Sequence[str]) -> list[str]:
    lines = [f"reserved {_range(*each)};" for each in ranges]
    if names:
        lines.append(f"reserved {', '.join(json.dumps(name) for name in names)};")
    return lines


def _extensions(
    extensions: Sequence[FieldDescriptorProto],
    proto3: bool,  # noqa: FBT001 - two forms
) -> list[str]:
    lines = []
    for each in extensions:
        lines += ["", *_block(f"extend {each.extendee}", _field(each, None, {}, proto3))]
    return lines


def _service(service: ServiceDescriptorProto) -> list[str]:
    lines = []
    for method in service.method:
        sent = ("stream " if method.client_streaming else "") + method.input_type
        given = ("stream " if method.server_streaming else "") + method.output_type
        lines.append(f"rpc {method.name}({sent}) returns ({given});")
    return _block(f"service {service.name}", lines)
