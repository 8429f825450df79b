"""Which tables are read, and that a sink finds their names in those of their streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import ConfigError
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.selection import Selection
from headrace_plugins.table_mapping import NameTemplate

NAMES = st.text("ab._- ü", min_size=1, max_size=6).filter(lambda name: name == name.strip())
TABLES = st.builds(TableName, NAMES, NAMES)


@given(TABLES, st.sampled_from(["public", "a", "a.b"]))
def test_a_sink_finds_the_table_that_a_stream_is_of(table: TableName, default: str) -> None:
    stream = Selection([], [], default).stream(table)
    named = NameTemplate("${table}").filled(stream, field="f")
    assert TableName.parse(named).name == table.name
    assert TableName.parse(stream, default) == table


@given(TABLES)
def test_a_table_can_be_named_whatever_its_name_is(table: TableName) -> None:
    pattern = f'"{table.schema}"."{table.name}"'
    others = [TableName("public", "other"), TableName(table.schema, f"{table.name}x")]
    assert Selection([pattern], [], "public").chosen([table, *others]) == [table]
    assert Selection([], [pattern], "public").chosen([table, *others]) == others


@pytest.mark.parametrize("pattern", ["main.secret", "MAIN.secret", "main.s*", "*.secret"])
def test_the_alias_of_the_default_schema_is_that_schema(pattern: str) -> None:
    secret, other = TableName("", "secret"), TableName("", "other")
    included = Selection([pattern], [], "", schema_alias="main")
    excluded = Selection([], [pattern], "", schema_alias="main")
    assert included.chosen([secret, other]) == [secret]
    assert excluded.chosen([secret, other]) == [other]
    assert not included.takes(TableName("attached", "secret")) or pattern.startswith("*")


def test_a_regular_expression_is_told_from_a_pattern() -> None:
    selection = Selection([r"public\.(a|b)", "none"], [], "public")
    with pytest.raises(ConfigError, match="not regular expressions") as raised:
        selection.chosen([TableName("public", "a"), TableName("public", "b")])
    assert "none" in raised.value.problem
