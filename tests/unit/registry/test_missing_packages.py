"""What the kernel says where the packages of the schema registry are not installed."""

import subprocess
import sys
from pathlib import Path

import pytest

HIDDEN = (
    "import sys\n"
    "for name in ('avro', 'jsonschema', 'referencing', 'google.protobuf', 'grpc_tools'):\n"
    "    sys.modules[name] = None\n"
    "from headrace.cli import main\n"
    "sys.exit(main(sys.argv[1:]))"
)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDDEN, "--home", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_line_lists_its_commands(tmp_path: Path) -> None:
    assert "registry" in run(tmp_path, "--help").stdout


def test_an_empty_registry_has_no_subjects(tmp_path: Path) -> None:
    assert run(tmp_path, "registry", "subjects", "--json").stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("file", "text", "extra"),
    [
        ("user.avsc", '"string"', "registry"),
        ("user.json", "{}", "registry"),
        ("user.proto", 'syntax = "proto3";', "protobuf"),
    ],
)
def test_a_schema_asks_for_the_extra(tmp_path: Path, file: str, text: str, extra: str) -> None:
    (tmp_path / file).write_text(text)
    ended = run(tmp_path, "registry", "register", "users", str(tmp_path / file))
    assert ended.returncode == 3
    assert f"Install headrace[{extra}]." in ended.stderr


@pytest.mark.parametrize("name", ["AvroConverter", "JsonSchemaConverter", "ProtobufConverter"])
def test_a_converter_is_described_all_the_same(tmp_path: Path, name: str) -> None:
    ended = run(tmp_path, "plugins", "describe", name)
    assert ended.returncode == 0, ended.stderr
