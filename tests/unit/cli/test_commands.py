"""The commands that need no Spark, in this process: validate, topic and plugins."""

import json
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.sdk import Schema
from headrace.sdk.location import Location
from headrace.topics import Topics, topic_row_schema

GOOD = "name: gen\nsource: {connector: datagen, rows: 10}\ntopic: gen\n"
BAD = """\
name: gen
source: {connector: datagen, rows: many, bogus: 1}
topic: gen
transforms: [{type: Nonsense}]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with the topic ``flights``."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    value = Schema.struct(
        {
            "id": Schema.int64(),
            "legs": Schema.array(Schema.struct({"to": Schema.string(optional=True)})),
        }
    )
    topic = Topics(Location.of(tmp_path / "home" / "topics")).get("flights")
    topic.prepare(topic_row_schema(value, Schema.string()))
    return tmp_path / "home"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A good file and a bad one."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD)
    bad.write_text(BAD)
    return str(good), str(bad)


@pytest.mark.usefixtures("home")
class TestValidate:
    def test_a_good_file_is_ok(
        self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["validate", files[0]]) == 0
        assert capsys.readouterr().out == f"ok: gen (source) in {files[0]}\n"

    def test_every_error_is_shown_with_its_field_and_fix(
        self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["validate", files[1]]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        for field in ("source.rows: ", "source.bogus: ", "transforms[0].type: "):
            assert f"] {field}" in told.err
        assert told.err.count("error[") == 3
        assert told.err.count("  fix: ") == 3
        assert "Traceback" not in told.err

    def test_the_findings_are_one_json_object(
        self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["validate", "--json", *files]) == 2
        told = capsys.readouterr()
        found = json.loads(told.out)
        assert told.err == ""
        assert found["valid"] is False
        assert {error["file"] for error in found["errors"]} == {files[1]}
        assert {"code", "field", "problem", "fix", "connector"} <= set(found["errors"][0])

    def test_a_name_that_two_files_define_is_an_error(
        self, files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        copy = tmp_path / "copy.yaml"
        copy.write_text(GOOD)
        assert main(["validate", files[0], str(copy)]) == 2
        assert "is also defined in" in capsys.readouterr().err

    def test_the_one_error_of_several_files_names_its_file(
        self, files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        bad = tmp_path / "bad.yaml"
        bad.write_text("nmae: p\nsource: datagen\nsinks: [noop]\n")
        assert main(["validate", files[0], str(bad)]) == 2
        assert f"{bad}: name: Missing required key." in capsys.readouterr().err

    def test_a_missing_file_does_not_hide_the_others(
        self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["validate", "/no/such.yaml", files[1]]) == 2
        told = capsys.readouterr().err
        assert "/no/such.yaml cannot be read" in told
        assert "source.rows: " in told

    def test_a_misspelt_key_of_errors_is_an_error_with_the_close_one(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "misspelt.yaml"
        file.write_text(f"errors.tolerence: all\n{GOOD}")
        assert main(["validate", str(file)]) == 2
        told = capsys.readouterr().err
        assert "errors.tolerence: Unknown key." in told
        assert "Did you mean errors.tolerance?" in told

    def test_kafkas_form_gives_warnings_for_unknown_keys(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "kafka.json"
        config = {
            "connector.class": "headrace_plugins.connectors.datagen.connector.DatagenSource",
            "rows": "5",
            "bogus": "1",
        }
        file.write_text(json.dumps({"name": "gen", "config": config}))
        assert main(["validate", str(file)]) == 0
        told = capsys.readouterr()
        assert "warning[config.invalid] bogus: " in told.err
        assert "ok: gen" in told.out


@pytest.mark.usefixtures("home")
class TestTopic:
    def test_topics_are_listed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["topic", "list", "--json"]) == 0
        (topic,) = json.loads(capsys.readouterr().out)
        assert topic["name"] == "flights"
        assert topic["rows"] == 0
        assert main(["topic", "list"]) == 0
        assert "flights" in capsys.readouterr().out

    def test_a_home_without_topics_says_so(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["topic", "list", "--home", str(tmp_path / "empty")]) == 0
        told = capsys.readouterr()
        assert told.out == ""
        assert "no topics in" in told.err

    def test_a_topic_is_described_with_its_schema(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["topic", "describe", "flights"]) == 0
        shown = capsys.readouterr().out
        assert "value.id" in shown
        assert "array<struct>" in shown
        assert main(["topic", "describe", "flights", "--json"]) == 0
        described = json.loads(capsys.readouterr().out)
        assert described["version"] == 0
        assert described["schema"]["type"] == "struct"

    def test_how_long_a_topic_keeps_its_rows_is_configured_and_shown(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        limits = ["--retention", "30d", "--retention-bytes", "10GB", "--remove-unread"]
        assert main(["topic", "configure", "flights", *limits]) == 0
        assert capsys.readouterr().out == (
            "flights: 30 d 0 h, up to 10.0 GB, unread rows too\n"
        )
        assert main(["topic", "configure", "flights", "--retention", "none", "--json"]) == 0
        kept = json.loads(capsys.readouterr().out)["retention"]
        assert kept == {"ms": None, "bytes": 10**10, "unread": True}
        assert main(["topic", "describe", "flights"]) == 0
        assert "retention       unlimited, up to 10.0 GB" in capsys.readouterr().out

    @pytest.mark.parametrize("limit", ["30 days", "d", "-5d", "0d"])
    def test_a_limit_that_cannot_be_read_is_refused(
        self, limit: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["topic", "configure", "flights", f"--retention={limit}"]) == 2
        assert "error[" in capsys.readouterr().err

    @pytest.mark.parametrize("command", ["configure", "describe", "peek"])
    def test_an_unknown_topic_gives_2_and_a_close_name(
        self, command: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["topic", command, "fligths"]) == 2
        assert "Did you mean flights?" in capsys.readouterr().err

    def test_an_empty_topic_can_be_peeked_into(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["topic", "peek", "flights"]) == 0
        assert "flights is empty" in capsys.readouterr().err


class TestPlugins:
    def test_plugins_are_listed_with_kafkas_names(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plugins", "list", "--kind", "source", "--json"]) == 0
        found = {plugin["name"]: plugin for plugin in json.loads(capsys.readouterr().out)}
        assert found["datagen"]["type"] == "source"
        assert found["datagen"]["class"].endswith(".DatagenSource")
        assert found["datagen"]["delivery"] == "exactly_once"
        assert {plugin["type"] for plugin in found.values()} == {"source"}

    def test_a_plugins_keys_are_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plugins", "describe", "datagen"]) == 0
        shown = capsys.readouterr().out
        for part in ("datagen (source)", "exactly_once", "null.ratio", "DOUBLE", "medium"):
            assert part in shown

    def test_a_plugins_keys_have_kafkas_shape(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plugins", "describe", "datagen", "--json"]) == 0
        keys = {key["name"]: key for key in json.loads(capsys.readouterr().out)}
        assert keys["rows"]["type"] == "LONG"
        assert {"required", "default_value", "importance", "documentation"} <= set(keys["rows"])

    def test_an_alias_is_as_good_as_a_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        name = "org.apache.kafka.connect.transforms.Cast"
        assert main(["plugins", "describe", name]) == 0
        assert "Cast (transform)" in capsys.readouterr().out

    def test_an_unknown_plugin_gives_2_and_a_close_name(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plugins", "describe", "datagem"]) == 2
        assert "Did you mean datagen?" in capsys.readouterr().err

    def test_an_unknown_kind_gives_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plugins", "list", "--kind", "spring"]) == 2
        assert "Use one of: source, sink" in capsys.readouterr().err
