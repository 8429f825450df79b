"""A sink's name in marks goes with its target, whatever sinks are beside it."""

from itertools import permutations

import pytest

from headrace.control import SinkPlan
from headrace.runtime.tasks import sink_names
from headrace.sdk import SinkConnector
from headrace_plugins.connectors.console.connector import ConsoleSink
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.jdbc.sink import JdbcSink
from headrace_plugins.connectors.mysql.sink import MysqlSink
from headrace_plugins.connectors.postgres.sink import PostgresSink


def plan(connector: type[SinkConnector], **config: str) -> SinkPlan:
    return SinkPlan(connector, config)


DELTA = plan(DeltaSink, path="/lake/orders")
OTHER_DELTA = plan(DeltaSink, path="/lake/customers")
FILE = plan(FileSink, path="/lake/orders")
CONSOLE = plan(ConsoleSink)


def test_names_do_not_depend_on_number_or_order():
    alone = {id(each): sink_names([each])[0] for each in (DELTA, OTHER_DELTA, FILE, CONSOLE)}
    assert len(set(alone.values())) == 4
    for plans in permutations((DELTA, OTHER_DELTA, FILE, CONSOLE)):
        assert sink_names(plans) == [alone[id(each)] for each in plans]


@pytest.mark.parametrize(
    "tuned", [plan(DeltaSink, path="file:///lake/orders", **{"optimize.interval.commits": "7"})]
)
def test_what_is_tuned_changes_no_name(tuned: SinkPlan):
    assert sink_names([tuned]) == sink_names([DELTA])


def test_equal_sinks_have_names_of_their_own():
    names = sink_names([DELTA, FILE, DELTA, DELTA])
    assert len(set(names)) == 4
    assert names[:2] == sink_names([DELTA, FILE])


def test_sinks_that_do_not_say_what_they_write_to_go_by_their_configurations():
    one = plan(ConsoleSink, limit="1")
    two = plan(ConsoleSink, limit="2")
    assert sink_names([one]) == sink_names([two])
    assert sink_names([one, two]) == sink_names([two, one])[::-1]
    assert len(set(sink_names([one, two]))) == 2


@pytest.mark.parametrize(
    ("connector", "urls"),
    [
        (
            PostgresSink,
            [
                "postgresql://localhost/shop",
                "jdbc:postgresql://127.0.0.1:5432/shop?sslmode=require&user=me",
                "postgres://STANDBY/shop?user=me&sslmode=require",
            ],
        ),
        (MysqlSink, ["mysql://localhost/shop", "jdbc:mariadb://127.0.0.1:3306/shop?ssl=1"]),
        (
            JdbcSink,
            [
                "jdbc:sqlserver://localhost;encrypt=true;databaseName=shop",
                "jdbc:sqlserver://127.0.0.1:1433;databaseName=shop;encrypt=false",
            ],
        ),
        (JdbcSink, ["jdbc:oracle:thin:@//db:1521/shop", "jdbc:oracle:thin:@//DB/shop"]),
    ],
)
def test_a_database_has_one_name_however_its_url_is_written(
    connector: type[SinkConnector], urls: list[str]
):
    def named(url: str, table: str = "orders") -> str:
        config = {"connection.url": url, "table.name.format": table}
        if connector is JdbcSink:
            config["driver.coordinates"] = "com.example:driver:1.0"
        return sink_names([plan(connector, **config)])[0]

    assert len({named(url) for url in urls}) == 1
    others = {named(urls[0].replace("shop", "store")), named(urls[0], "customers")}
    assert len({named(urls[0]), *others}) == 3


@pytest.mark.parametrize(
    ("connector", "config", "key", "texts"),
    [
        (DeltaSink, {}, "path", ("/lake/{}", "/other/{}")),
        (
            PostgresSink,
            {"connection.url": "postgresql://localhost/shop"},
            "table.name.format",
            ("copied.{}", "other.{}"),
        ),
    ],
)
def test_a_name_does_not_depend_on_how_the_tables_of_streams_are_written(
    connector: type[SinkConnector], config: dict[str, str], key: str, texts: tuple[str, str]
):
    def named(text: str, placeholder: str) -> str:
        made = {**config, key: text.format(placeholder)}
        return sink_names([plan(connector, **made)])[0]

    here, there = texts
    assert named(here, "${topic}") == named(here, "${table}")
    assert named(here, "${topic}") != named(there, "${topic}")
