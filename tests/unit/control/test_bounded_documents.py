"""Documents that would keep a machine busy for long, or hold no numbers, are refused."""

import time
from pathlib import Path

import pytest

from headrace.control.config_infos import config_infos
from headrace.control.definition_forms import MAX_STEPS, flat, section_steps
from headrace.control.files import documents_of, read_documents
from headrace.plugins import Registry
from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.config import ConfigDef, ConfigType

FILE = Path("connector.yaml")


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_a_yaml_text_that_stands_for_very_much_is_refused_at_once() -> None:
    begun = time.process_time()
    with pytest.raises(ConfigError, match="values after expanding aliases"):
        documents_of(bomb(9), FILE)
    assert time.process_time() - begun < 5


def test_ordinary_aliases_are_read() -> None:
    text = "base: &base {a: 1}\nname: &n x\nmore: [*base, *base, *n]\n"
    assert documents_of(text, FILE) == [
        {"base": {"a": 1}, "name": "x", "more": [{"a": 1}, {"a": 1}, "x"]}
    ]
    assert documents_of(bomb(3), FILE)


def test_a_yaml_text_that_nests_too_deeply_is_an_error_of_its_file() -> None:
    with pytest.raises(ConfigError, match="nests too deeply"):
        documents_of("[" * 5_000, FILE)


def test_a_chain_of_thousands_is_refused_at_once() -> None:
    names = [f"t{n}" for n in range(3_000)]
    config = {
        "name": "c",
        "connector.class": "FileStreamSourceConnector",
        "file": "/x",
        "topic": "t",
        "transforms": ",".join(names),
        **{f"transforms.{name}.type": "Filter" for name in names},
    }
    begun = time.process_time()
    with pytest.raises(ConfigError, match=f"at most {MAX_STEPS}") as raised:
        config_infos(config, Registry())
    assert raised.value.field == "transforms"
    assert time.process_time() - begun < 5
    with pytest.raises(ConfigErrors, match=f"at most {MAX_STEPS}"):
        section_steps([{"type": "Filter"}] * 3_000)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", float("inf")])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    keys = ConfigDef().define("rate", ConfigType.DOUBLE, doc="A rate.")
    with pytest.raises(ConfigErrors, match="rate"):
        keys.parse({"rate": value})


@pytest.mark.parametrize("number", [".nan", "1e999", "-.inf"])
def test_a_file_holds_only_finite_numbers(number: str) -> None:
    (document,) = documents_of(f"rate: !!float {number}", FILE)
    assert isinstance(document, dict)
    with pytest.raises(ConfigError, match="Unsupported number"):
        flat(document)


def test_an_alias_within_its_own_value_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    for text in ("name: &a [*a]\n", "name: a\nsource: &s {connector: datagen, more: *s}\n"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="after expanding aliases"):
            read_documents(file)


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_a_file_that_is_not_utf_8_is_said_to_be(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes('{"name": "caf\u00e9"}'.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"is not UTF-8: .* at byte 13"):
        read_documents(file)
    file.write_bytes(b"\xef\xbb\xbf" + '{"name": "caf\u00e9"}'.encode())
    assert read_documents(file) == [{"name": "caf\u00e9"}]


@pytest.mark.parametrize("text", ["2026-02-30", "2026-13-01T00:00:00"])
def test_a_date_that_there_is_not_is_an_error_of_its_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"name: a\nschedule:\n  start: {text}\n")
    with pytest.raises(ConfigError, match=r"must be in|out of range"):
        read_documents(file)
