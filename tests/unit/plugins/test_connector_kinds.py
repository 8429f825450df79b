"""What a connector class of Kafka's form is taken for."""

import pytest

from headrace.model import PluginNotFoundError
from headrace.plugins import PluginKind, Registry
from headrace.sdk import ConfigError


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
        Registry().reads("file")
    assert caught.value.field == "connector.class"
    assert "FileSource to read" in caught.value.fix
    assert caught.value.fix.endswith("FileSink to write.")


def test_a_name_of_none_is_not_found() -> None:
    with pytest.raises(PluginNotFoundError, match="nosuch"):
        Registry().reads("nosuch")
