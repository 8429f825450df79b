"""What a connector class of Kafka's form is taken for."""

import re
from pathlib import Path

import pytest

from headrace.model import PluginNotFoundError
from headrace.plugins import PluginKind, Registry
from headrace.sdk import ConfigError
from headrace.sdk.errors import SetupError


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("datagen", PluginKind.SOURCE),
        ("FileStreamSource", PluginKind.SOURCE),
        ("org.apache.kafka.connect.file.FileStreamSinkConnector", PluginKind.SINK),
    ],
)
def test_a_class_reads_or_writes(name: str, kind: PluginKind) -> None:
    assert Registry().connector_kind(name) is kind


def test_a_name_of_a_source_and_of_a_sink_is_refused_with_both_classes() -> None:
    with pytest.raises(ConfigError) as caught:
        Registry().reads({"connector.class": "file", "file": "x"})
    assert caught.value.field == "connector.class"
    assert "Set topic to read, or topics to write" in caught.value.fix
    assert caught.value.fix.endswith("FileSink.")


@pytest.mark.parametrize("name", ["file", "delta"])
@pytest.mark.parametrize(
    ("key", "reads"), [("topic", True), ("topics", False), ("topics.regex", False)]
)
def test_topics_tell_a_sink_from_a_source_of_the_same_name(
    name: str, key: str, reads: bool
) -> None:
    assert Registry().reads({"connector.class": name, key: "t"}) is reads


@pytest.mark.parametrize(
    "name",
    [
        "nosuch",
        "no.such.Source",
        "..",
        "../../etc/passwd",
        "headrace.__main__.X",
        "a..b.C",
        "é.1.X",
    ],
)
def test_a_name_of_none_is_not_found(name: str) -> None:
    with pytest.raises(PluginNotFoundError, match=re.escape(name)):
        Registry().reads({"connector.class": name})


@pytest.mark.parametrize("code", ["1 / 0", "import sys; sys.exit(3)"])
def test_a_module_that_cannot_be_imported_says_why(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_at_import.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SetupError, match="broken_at_import cannot be imported"):
        Registry().reads({"connector.class": "broken_at_import.Source"})
