"""A change of the schema in mid-stream reaches each target as its policy says."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.converting import Memory, converter, raw_frame
from tests.integration.dataplane.flow_doubles import (
    NOW,
    TASK,
    Kept,
    batch,
    dead_letters,
    place,
    read_topic,
    row_of,
    topic_writer,
)
from tests.no_keys import NO_KEYS
from tests.task_doubles import Schemas

from headrace.dataplane import ConvertingReader, Flow, FrameReader, TopicSource
from headrace.evolution import Evolution
from headrace.model import Batch, SchemaChangeError
from headrace.sdk import FrameSource, Position, ReadLimit
from headrace.sdk.location import Location
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling
from headrace.sdk.sqltext import rows
from headrace.topics import TopicReader, Topics
from headrace_plugins.connectors.delta.sink import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVOLVE, LENIENT = Handling.EVOLVE, Handling.LENIENT
IGNORE, REJECT = Handling.IGNORE, Handling.REJECT
BEFORE = ("1 AS id", "CAST(5 AS INT) AS a", "'x' AS b", "named_struct('n', 1, 'm', 'q') AS s")


@dataclass
class Changing(FrameSource):
    """One row with the columns ``before``, and then some with the columns ``after``."""

    before: Sequence[str]
    after: Sequence[str]

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(2)

    def read(self, spark, start, end):
        columns = self.after if row_of(start) else self.before
        return rows(spark.range(1).selectExpr(*columns))


def flow(
    spark: "SparkSession",
    sinks: Sequence[Any],
    source: FrameReader | TopicSource | ConvertingReader,
    policy: EvolutionPolicy,
    **more: Any,
) -> Flow:
    memory = more.pop("memory", None) or Schemas()
    policies = more.pop("policies", [policy] * len(sinks))
    evolution = Evolution(policies=policies, memory=memory)
    more.setdefault("names", [str(n) for n in range(len(sinks))])
    return Flow(
        spark=spark,
        application="copy-uid-0",
        topic="t",
        source=source,
        steps=[],
        sinks=sinks,
        staging=Location.of(Path(tempfile.gettempdir()) / "headrace-test-staging"),
        evolution=evolution,
        **more,
    )


def of(kind: ChangeKind, handling: Handling) -> EvolutionPolicy:
    return EvolutionPolicy(handlings={kind: handling}, renames={"b": "new"})


ID, A, B, S = BEFORE
CHANGES: dict[ChangeKind, tuple[str, ...]] = {
    ChangeKind.ADD: (ID, A, B, "named_struct('n', 1, 'm', 'q', 'k', 2) AS s", "7 AS c"),
    ChangeKind.WIDEN: (ID, "CAST(6 AS BIGINT) AS a", B, S),
    ChangeKind.NARROW: (ID, "CAST(6 AS TINYINT) AS a", B, S),
    ChangeKind.RETYPE: (ID, "'6' AS a", B, S),
    ChangeKind.RENAME: (ID, A, "'y' AS new", S),
    ChangeKind.DROP: (ID, B, "named_struct('n', 1) AS s"),
    ChangeKind.REORDER: (B, ID, A, "named_struct('m', 'q', 'n', 1) AS s"),
}
ROW = {"id": 1, "a": 5, "b": "x", "s": {"n": 1, "m": "q"}}
SECOND: list[tuple[ChangeKind, Handling, dict[str, Any]]] = [
    (ChangeKind.ADD, EVOLVE, ROW | {"s": {"n": 1, "m": "q", "k": 2}, "c": 7}),
    (ChangeKind.ADD, LENIENT, ROW | {"s": {"n": 1, "m": "q", "k": 2}, "c": 7}),
    (ChangeKind.ADD, IGNORE, ROW),
    (ChangeKind.WIDEN, EVOLVE, ROW | {"a": 6}),
    (ChangeKind.WIDEN, IGNORE, ROW | {"a": 6}),
    (ChangeKind.NARROW, EVOLVE, ROW | {"a": 6}),
    (ChangeKind.NARROW, IGNORE, ROW | {"a": 6}),
    (ChangeKind.RETYPE, EVOLVE, ROW | {"a": "6"}),
    (ChangeKind.RETYPE, LENIENT, ROW | {"a": None, "a__string": "6"}),
    (ChangeKind.RETYPE, IGNORE, ROW | {"a": 6}),
    (ChangeKind.RENAME, EVOLVE, {"id": 1, "a": 5, "new": "y", "s": {"n": 1, "m": "q"}}),
    (ChangeKind.RENAME, LENIENT, ROW | {"b": "y", "new": "y"}),
    (ChangeKind.RENAME, IGNORE, ROW | {"b": "y"}),
    (ChangeKind.DROP, EVOLVE, {"id": 1, "b": "x", "s": {"n": 1}}),
    (ChangeKind.DROP, LENIENT, ROW | {"a": None, "s": {"n": 1, "m": None}}),
    (ChangeKind.REORDER, EVOLVE, ROW),
    (ChangeKind.REORDER, IGNORE, ROW),
]


@pytest.mark.parametrize(("kind", "handling", "expected"), SECOND)
def test_a_sink_gets_each_kind_of_change_as_its_policy_says(
    spark: "SparkSession", kind: ChangeKind, handling: Handling, expected: dict[str, Any]
) -> None:
    sink = Kept()
    source = FrameReader(Changing(BEFORE, CHANGES[kind]))
    running = flow(spark, [sink], source, of(kind, handling))
    running.run(batch(1, 0, 1))
    counts = running.run(batch(2, 1, 2))
    assert (counts.read, counts.written) == (1, 1)
    assert [row["value"] for row in sink.rows] == [ROW, expected]
    order = list(sink.rows[1]["value"])
    if kind is ChangeKind.REORDER:
        assert order == (["b", "id", "a", "s"] if handling is EVOLVE else list(ROW))


def test_records_whose_values_do_not_fit_an_ignored_change_are_dead_lettered(
    spark: "SparkSession", tmp_path: Path
) -> None:
    after = (
        "id",
        "IF(id = 0, 2147483648, id) AS a",
        "IF(id = 1, NULL, 'y') AS b",
        "named_struct('n', IF(id = 2, 'one', '1'), 'm', 'q') AS s",
    )
    sink = Kept()
    letters = dead_letters(tmp_path, "dead")
    source = Changing(("CAST(0 AS BIGINT) AS id", *BEFORE[1:]), after)
    source.read = lambda spark, start, end: rows(  # type: ignore[method-assign]
        spark.range(4).selectExpr(*source.after)
        if row_of(start)
        else spark.range(1).selectExpr(*source.before)
    )
    running = flow(
        spark, [sink], FrameReader(source), EvolutionPolicy(IGNORE), dead_letters=letters
    )
    running.run(batch(1, 0, 1))
    counts = running.run(batch(2, 1, 2))
    assert (counts.read, counts.written, counts.rejected) == (4, 1, 3)
    assert sink.rows[1]["value"] == {"id": 3, "a": 3, "b": "y", "s": {"n": 1, "m": "q"}}
    dead = [str(row["headers"]) for row in read_topic(spark, tmp_path, "dead")]
    told = (
        "The field a does not fit",
        "The field b does not fit",
        "The field s.n does not fit",
    )
    assert all(any(text in letter for letter in dead) for text in told)


def test_changes_go_through_a_topic_into_a_delta_table(
    spark: "SparkSession", tmp_path: Path
) -> None:
    after = (ID, "'six' AS a", "named_struct('n', 1, 'k', true) AS s", "7 AS c")
    policy = EvolutionPolicy(LENIENT)
    into = flow(
        spark,
        [topic_writer(tmp_path, "t")],
        FrameReader(Changing(BEFORE, after)),
        policy,
    )
    task = DeltaSink.task(DeltaSink.config_def().parse({"path": str(tmp_path / "d")}))
    reader = TopicReader(Topics(Location.of(tmp_path)).get("t"))
    out = flow(spark, [task], TopicSource(reader, ordered=True), policy)
    start = Position()
    for number in (1, 2):
        into.run(batch(number, number - 1, number))
        end = reader.latest(start, ReadLimit())
        out.run(Batch(TASK, number, 1, start, end, NOW))
        start = end
    found = spark.read.format("delta").load(str(tmp_path / "d")).orderBy("c").collect()
    assert [row.asDict(recursive=True) for row in found] == [
        {"id": 1, "a": 5, "b": "x", "s": {"n": 1, "m": "q", "k": None}, "c": None}
        | {"a__string": None},
        {"id": 1, "a": None, "b": None, "s": {"n": 1, "m": None, "k": True}, "c": 7}
        | {"a__string": "six"},
    ]


class Texts(FrameSource):
    """A record of plain JSON, and then some with another type in a field."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(2)

    def read(self, spark, start, end):
        first, others = [b'{"id":1,"a":5}'], [b'{"id":2,"a":"x"}', b'{"id":3,"a":7}']
        return raw_frame(spark, others if row_of(start) else first)


@pytest.mark.parametrize(
    ("handling", "rejected", "expected"),
    [
        (LENIENT, 0, [(1, 5, None), (2, None, "x"), (3, None, "7")]),
        (IGNORE, 1, [(1, 5, None), (3, 7, None)]),
    ],
)
def test_another_type_in_plain_json_of_a_topic_is_handled_by_the_policy(
    spark: "SparkSession", tmp_path: Path, handling: Handling, rejected: int, expected: Any
) -> None:
    sink, memory, seen = Kept(), Schemas(), Memory()
    rejections: list[int] = []
    for number in (1, 2):
        props = {"schemas.enable": "false"}
        json = converter("JsonConverter", props, schemas=seen)
        reader = ConvertingReader(FrameReader(Texts(NO_KEYS)), [json], tmp_path / "d")
        letters = dead_letters(tmp_path, "dead")
        running = flow(
            spark,
            [sink],
            reader,
            of(ChangeKind.RETYPE, handling),
            memory=memory,
            dead_letters=letters,
        )
        rejections.append(running.run(batch(number, number - 1, number)).rejected)
    assert rejections == [0, rejected]
    values = [row["value"] for row in sink.rows]
    found = [(value["id"], value["a"], value.get("a__string")) for value in values]
    assert sorted(found) == expected


def test_another_type_in_plain_json_of_a_topic_stops_a_task_that_rejects_it(
    spark: "SparkSession", tmp_path: Path
) -> None:
    memory, seen = Schemas(), Memory()
    props = {"schemas.enable": "false"}
    json = converter("JsonConverter", props, schemas=seen)
    reader = ConvertingReader(FrameReader(Texts(NO_KEYS)), [json], tmp_path / "d")
    running = flow(spark, [Kept()], reader, of(ChangeKind.RETYPE, REJECT), memory=memory)
    running.run(batch(1, 0, 1))
    with pytest.raises(SchemaChangeError, match="retype a"):
        running.run(batch(2, 1, 2))


@pytest.mark.parametrize("names", [["kept"], ["before", "kept"], ["kept", "behind"]])
def test_what_a_sink_was_given_is_remembered_whichever_sinks_are_beside_it(
    spark: "SparkSession", names: list[str]
) -> None:
    memory, reject = Schemas(), EvolutionPolicy(REJECT)
    reader = FrameReader(Changing((ID,), (ID, "7 AS c")))
    flow(spark, [Kept()], reader, reject, memory=memory, names=["kept"]).run(batch(1, 0, 1))
    sinks = [Kept() for _ in names]
    told = {"names": names, "memory": memory}
    told["policies"] = [reject if name == "kept" else EvolutionPolicy() for name in names]
    with pytest.raises(SchemaChangeError, match="add c"):
        flow(spark, sinks, reader, reject, **told).run(batch(2, 1, 2))
    assert [sink.rows for sink in sinks] == [[]] * len(sinks)
