"""Compiles Protobuf schemas with protoc.

protoc runs in its own process (about 70 ms): in this process it would write its errors to
stderr, mixed with the output of other threads. Results are cached.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from headrace.sdk.errors import SetupError
from headrace_plugins.confluent.schema_registry import InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

_SECONDS = 30

_META = """\
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""

_DECIMAL = """\
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""

_DATE = """\
syntax = "proto3";
package google.type;
message Date {
  int32 year = 1;
  int32 month = 2;
  int32 day = 3;
}
"""

_TIME = """\
syntax = "proto3";
package google.type;
message TimeOfDay {
  int32 hours = 1;
  int32 minutes = 2;
  int32 seconds = 3;
  int32 nanos = 4;
}
"""

_BUILTIN = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "google/type/date.proto": _DATE,
    "google/type/timeofday.proto": _TIME,
}
"""The files that Confluent's serializers import without registering them, by path.

The names, numbers and types are part of Confluent's wire format, so they must be the same.
"""


def compile_proto(
    text: str, imports: Mapping[str, str] | None = None, *, name: str = "schema.proto"
) -> bytes:
    """Return a serialized FileDescriptorSet: dependencies first, the schema's file last.

    Args:
        text: The text of a .proto file, or the Base64 of its FileDescriptorProto, which
            Confluent's Python serializer registers.
        imports: The texts of imported files, in either form, by import path. Not needed for
            Google's well-known types and Confluent's own files.
        name: The name of the file in the result.

    Raises:
        InvalidSchemaError: protoc reports an error, or an import is missing.
        SetupError: The extra `headrace[protobuf]` is not installed.
    """
    if find_spec("grpc_tools") is None:
        problem = "Protobuf schemas need protoc, which is not installed."
        raise SetupError(
            problem,
            fix="Install headrace[protobuf].",
        )
    return _compile(text, tuple((imports or {}).items()), name)


@lru_cache(maxsize=512)
def _compile(text: str, imports: tuple[tuple[str, str], ...], name: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="headrace-protoc-") as folder:
        root = Path(folder)
        binary = _write(root, {**_BUILTIN, **dict(imports)})
        main = _from_base64(text, name)
        if main is None:
            (root / "main").mkdir()
            (root / "main" / _entry(name)).write_text(text, encoding="utf-8")
            found = _run(root, binary, name)
            found.file[-1].name = name
        else:
            # Compile a file with the same imports, so that protoc resolves the dependencies.
            (root / "main").mkdir()
            lines = [f'import "{dependency}";' for dependency in main.dependency]
            stub = "\n".join(['syntax = "proto3";', *lines])
            (root / "main" / _entry(name)).write_text(stub, encoding="utf-8")
            found = _run(root, binary, name)
            found.file[-1].CopyFrom(main)
    _check(found)
    return found.SerializeToString()


def _entry(name: str) -> str:
    """Return a file name that no import has, so that the file never imports itself."""
    return f"headrace-main-{PurePosixPath(name).name}"


def _write(root: Path, files: Mapping[str, str]) -> list[FileDescriptorProto]:
    """Write the text imports below the root; return the binary imports."""
    binary = []
    for path, text in files.items():
        descriptor = _from_base64(text, path)
        if descriptor is not None:
            binary.append(descriptor)
            continue
        _write_import(root / "imports", path, text)
    return binary


def _write_import(folder: Path, path: str, text: str) -> None:
    target = PurePosixPath(path)
    problem = f"{path!r} is not a valid import path."
    if target.is_absolute() or ".." in target.parts or not target.parts:
        raise InvalidSchemaError(problem)
    file = folder / target
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except (OSError, ValueError):  # such as a path below another import, or one with a NUL
        raise InvalidSchemaError(problem) from None


def _run(root: Path, binary: list[FileDescriptorProto], name: str) -> FileDescriptorSet:
    import grpc_tools  # noqa: PLC0415 - an extra
    from google.protobuf.descriptor_pb2 import (  # noqa: PLC0415 - an extra
        FileDescriptorSet,
    )

    descriptors, made = root / "given", root / "made"
    descriptors.write_bytes(FileDescriptorSet(file=binary).SerializeToString())
    known = Path(grpc_tools.__path__[0]) / "_proto"
    (root / "imports").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "grpc_tools.protoc"]
    command += [f"-I{root / 'main'}", f"-I{root / 'imports'}", f"-I{known}"]
    if binary:
        command.append(f"--descriptor_set_in={descriptors}")
    command += ["--include_imports", f"--descriptor_set_out={made}", _entry(name)]
    ended = subprocess.run(  # noqa: S603 - our own interpreter, on files we wrote
        command, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if ended.returncode != 0:
        said = ended.stderr.replace(_entry(name), name).replace(str(root), "").strip()
        lines = [line for line in said.splitlines() if ": warning: " not in line]
        problem = f"Invalid Protobuf schema: {'; '.join(lines)[:2000]}"
        raise InvalidSchemaError(problem)
    return FileDescriptorSet.FromString(made.read_bytes())


def _from_base64(text: str, name: str) -> FileDescriptorProto | None:
    """Return the descriptor if the text is a Base64 descriptor, None if it is a .proto file."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    from google.protobuf.descriptor_pb2 import (  # noqa: PLC0415 - an extra
        FileDescriptorProto,
    )
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - an extra

    try:
        found = FileDescriptorProto.FromString(data)
    except DecodeError:
        return None
    found.name = name
    return found


def _check(found: FileDescriptorSet) -> None:
    """Raise InvalidSchemaError if the files are inconsistent."""
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415 - an extra

    pool = DescriptorPool()
    try:
        for file in found.file:
            pool.AddSerializedFile(file.SerializeToString())
        pool.FindFileByName(found.file[-1].name)
    except (TypeError, KeyError) as error:
        problem = f"Invalid Protobuf schema: {error}"
        raise InvalidSchemaError(problem) from None
