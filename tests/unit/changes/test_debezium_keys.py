"""Keys of Debezium that would change what arrives are refused, and not passed over."""

from pathlib import Path

import pytest

from headrace.cli import main
from headrace.sdk.errors import ConfigErrors
from headrace_plugins.connectors.mysql.source import MysqlSource
from headrace_plugins.connectors.postgres.source import PostgresSource

URLS = {PostgresSource: "postgresql:///shop", MysqlSource: "mysql://localhost/shop"}


@pytest.mark.parametrize("source", URLS)
@pytest.mark.parametrize(
    "key",
    ["column.exclude.list", "schema.include.list", "column.mask.with.10.chars"],
)
def test_a_key_that_would_change_what_arrives_is_refused(
    source: type[PostgresSource], key: str
) -> None:
    props = {"connection.url": URLS[source], key: "public.customers.prefs"}
    with pytest.raises(ConfigErrors) as raised:
        source.config_def().parse(props)
    assert [error.field for error in raised.value.errors] == [key]


@pytest.mark.parametrize("source", URLS)
def test_a_key_that_changes_nothing_is_let_through(source: type[PostgresSource]) -> None:
    props = {"connection.url": URLS[source], "tombstones.on.delete": "false"}
    assert source.config_def().parse(props)


def test_such_a_key_is_not_called_unknown_as_well(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    source = "connector: postgres, connection.url: postgresql://127.0.0.1:1/shop"
    key = "column.exclude.list: public.customers.prefs"
    file.write_text(f"name: shop\nsource: {{{source}, {key}}}\nsinks: [{{connector: noop}}]\n")
    assert main(["validate", str(file)]) == 2
    assert capsys.readouterr().err.count("column.exclude.list:") == 1
