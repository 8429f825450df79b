"""What decides the rows of a source is told from what does not."""

import pytest

from headrace.control.task_plans import SourcePlan
from headrace_plugins.connectors.delta.source import DeltaSource
from headrace_plugins.connectors.file.source import FileSource


def digests(**config: str) -> dict[str, str]:
    texts = {key.replace("_", "."): text for key, text in config.items()}
    return dict(SourcePlan(FileSource, {"path": "/in", **texts}).row_keys or {})


def test_a_default_is_the_same_whether_it_is_written_or_not() -> None:
    assert digests() == digests(header="true", max_files="7", settle_ms="0") == {}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("schema", "a INT"),
        ("format", "csv"),
        ("header", "false"),
        ("null_value", "NA"),
        ("encoding", "UTF-16"),
        ("time_zone", "Asia/Shanghai"),
        ("multiline", "true"),
        ("timestamp_nanos", "truncate"),
    ],
)
def test_what_changes_the_rows_of_a_file_changes_the_digest_of_its_key(
    key: str, text: str
) -> None:
    assert list(digests(**{key: text})) == [key.replace("_", ".")]


def test_each_value_has_a_digest_of_its_own() -> None:
    assert digests(schema="a INT") != digests(schema="a STRING")
    assert digests(schema="a INT") == digests(schema="a INT")


def test_a_change_feed_has_other_rows_than_a_table() -> None:
    plan = SourcePlan(
        DeltaSource, {"path": "/in", "read.change.feed": "true", "ending.version": "7"}
    )
    assert list(plan.row_keys or ()) == ["read.change.feed"]
