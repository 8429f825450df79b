"""Sinks that refuse records: those become dead letters, all others arrive once."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.integration.dataplane.flow_doubles import (
    CAST,
    CHAIN,
    Kept,
    TargetDownError,
    batch,
    dead_letters,
    flow,
    read_topic,
    row_of,
    transform,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import FrameReader, Step
from headrace.model import Counts
from headrace.sdk import (
    BatchSink,
    FrameSource,
    Mark,
    Record,
    RecordSink,
    RecordTransform,
    RejectedError,
    RetriableError,
    Transform,
)
from headrace.sdk.config import ConfigDef, ConfigType
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.transforms.cast import Cast

pytestmark = pytest.mark.spark

PUT = "TASK_PUT ValueError"


class ToTopic(Transform):
    """Sends odd and even records to topics of their own."""

    uses_names = True
    routes = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def apply(self, shape):
        return replace(shape, topic="concat('t', id % 2)")


class Refusing(BatchSink):
    """A table as a folder of files that refuses every id that ends in 3."""

    rejects = (ValueError,)

    def __init__(self, folder: Path, *, names: bool = False) -> None:
        self.folder, self.names = folder, names

    def write(self, rows, batch, part):
        values = [row for rows_of in rows for row in rows_of.to_pylist()]
        bad = {
            n: ValueError(f"no {v['id']}") for n, v in enumerate(values) if v["id"] % 10 == 3
        }
        if bad and self.names:
            raise RejectedError(bad)
        for error in bad.values():
            raise error
        self.folder.mkdir(exist_ok=True)
        (self.folder / f".{part}").write_text("".join(f"{v['id']}\n" for v in values))
        return {"part": part}

    def committed(self, mark: Mark, topic: str):
        receipt = self._receipt(mark)
        return receipt.read_text() if receipt.exists() else None

    def commit(self, messages, batch, receipt) -> None:
        for message in messages:
            staged = self.folder / f".{message['part']}"
            staged.rename(self.folder / f"{batch.topic}-{message['part']}.ids")
        self._receipt(batch.mark).write_text(receipt)

    def ids(self, topic: str = "*") -> list[int]:
        files = self.folder.glob(f"{topic}-*.ids")
        return sorted(int(line) for file in files for line in file.read_text().split())

    def _receipt(self, mark: Mark) -> Path:
        return self.folder / f"receipt.{mark.application.replace('/', '~')}.{mark.batch}"


class RefusingPut(RecordSink):
    """Appends lines; refuses texts of an id that ends in 3, or is down."""

    rejects = (ValueError,)

    def __init__(self, folder: Path, *, down: bool = False) -> None:
        self.folder, self.down = folder, down

    def put(self, records: Sequence[Record]) -> None:
        if self.down:
            message = "busy"
            raise RetriableError(message)
        for record in records:
            if record.value["id"] % 10 == 3:
                message = f"no {record.value['id']}"
                raise ValueError(message)
        with (self.folder / f"{records[0].value['id']}").open("a") as file:
            file.writelines(f"{record.value['id']}\n" for record in records)

    def ids(self) -> list[int]:
        return sorted(int(x) for f in self.folder.iterdir() for x in f.read_text().split())


def causes(spark, folder: Path) -> list[tuple[str, str, str, str]]:
    rows = [
        row["cause"] | {"value": row["value"]} for row in read_topic(spark, folder, "copy.dlq")
    ]
    return sorted((c["stage"], c["exception"], c["message"], c["value"]) for c in rows)


@pytest.mark.parametrize("names", [False, True])
def test_a_batch_sink_writes_its_parts_anew_without_what_it_refuses(
    spark, tmp_path: Path, names: bool
) -> None:
    sink = Refusing(tmp_path / "out", names=names)
    running = flow(spark, [sink], CAST, dead_letters=dead_letters(tmp_path))
    done = Counts(read=100, written=80, rejected=20, causes={CHAIN: 10, PUT: 10})
    assert running.run(batch(1, 0, 100)) == done
    assert sink.ids() == [n for n in range(100) if n % 10 not in {3, 7}]
    found = [cause for cause in causes(spark, tmp_path) if cause[0] == "TASK_PUT"]
    assert found == sorted(
        ("TASK_PUT", "ValueError", f"no {n}", f'{{"id":{n},"text":"{n}"}}')
        for n in range(3, 100, 10)
    )
    (told,) = {row["cause"]["class"] for row in read_topic(spark, tmp_path, "copy.dlq")} - {
        "cast (Cast)"
    }
    assert told.endswith(".Refusing")
    assert running.run(batch(1, 0, 100, again=True)) == done
    assert len(read_topic(spark, tmp_path, "copy.dlq")) == 20


def test_where_nothing_is_tolerated_the_sinks_error_ends_the_task(
    spark, tmp_path: Path
) -> None:
    sink = Refusing(tmp_path / "out")
    with pytest.raises(Exception, match="no 3"):
        flow(spark, [sink]).run(batch(1, 0, 10))
    assert not sink.ids()


def test_a_record_sink_gets_the_others_and_its_refusals_are_told(spark, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    sink = RefusingPut(out)
    running = flow(spark, [sink], CAST, dead_letters=dead_letters(tmp_path))
    done = Counts(read=100, written=80, rejected=20, causes={CHAIN: 10, PUT: 10})
    assert running.run(batch(1, 0, 100)) == done
    assert sink.ids() == [n for n in range(100) if n % 10 not in {3, 7}]
    assert len(causes(spark, tmp_path)) == 20
    # It keeps no mark: the batch is put again, as it declares, and its letters are not.
    assert running.run(batch(1, 0, 100, again=True)) == done
    assert len(sink.ids()) == 160
    assert len(causes(spark, tmp_path)) == 20


def test_a_busy_target_is_no_cause_of_dead_letters(spark, tmp_path: Path) -> None:
    sink = RefusingPut(tmp_path, down=True)
    with pytest.raises(RetriableError):
        flow(spark, [sink], dead_letters=dead_letters(tmp_path)).run(batch(1, 0, 10))
    assert not (tmp_path / "copy.dlq").exists()


def test_equal_records_are_refused_one_by_one(spark, tmp_path: Path) -> None:
    class Once(Refusing):
        """Refuses what is there twice, as a unique key does."""

        ordered = True

        def write(self, rows, batch, part):
            values = [row["id"] for rows_of in rows for row in rows_of.to_pylist()]
            if len(set(values)) < len(values):
                message = "twice"
                raise ValueError(message)
            self.folder.mkdir(exist_ok=True)
            (self.folder / f".{part}").write_text("".join(f"{v}\n" for v in values))
            return {"part": part}

    class Tripled(FrameSource):
        """Each record three times, with maps, which no hash takes as they are."""

        def latest(self, start, limit):
            return start

        def read(self, spark, start, end):
            value = "named_struct('id', id DIV 3, 'm', map('k', id DIV 3)) AS value"
            return spark.range(0, row_of(end), 1, 2).selectExpr(value)

    sink = Once(tmp_path / "out")
    reader = FrameReader(Tripled(NO_KEYS))
    running = flow(spark, [sink], source=reader, dead_letters=dead_letters(tmp_path))
    counts = running.run(batch(1, 0, 12))
    assert (counts.read, counts.written, counts.rejected) == (12, 4, 8)
    assert sink.ids() == [0, 1, 2, 3]
    assert len(causes(spark, tmp_path)) == 8


def test_a_sink_of_many_topics_refuses_in_each_and_a_crash_between_loses_none(
    spark, tmp_path: Path
) -> None:
    class Crashing(Refusing):
        crash = False

        def commit(self, messages, batch, receipt) -> None:
            if self.crash and batch.topic == "t1":
                raise TargetDownError
            super().commit(messages, batch, receipt)

    route = Step(transform(ToTopic, "route"))
    sink = Crashing(tmp_path / "out")
    running = flow(
        spark, [sink], route, dead_letters=dead_letters(tmp_path), staging=tmp_path / "staging"
    )
    sink.crash = True
    with pytest.raises(TargetDownError):
        running.run(batch(1, 0, 40))
    sink.crash = False
    counts = running.run(batch(1, 0, 40, again=True))
    assert counts == Counts(read=40, written=36, rejected=4, causes={PUT: 4})
    assert sink.ids("t1") == [n for n in range(1, 40, 2) if n % 10 != 3]
    assert sink.ids("t0") == list(range(0, 40, 2))
    assert len(causes(spark, tmp_path)) == 4


class Tombstones(FrameSource):
    """Every fifth record has no value."""

    def latest(self, start, limit):
        return start

    def read(self, spark, start, end):
        frame = spark.range(row_of(start), row_of(end), 1, 2)
        value = "IF(id % 5 = 0, NULL, named_struct('id', id, 'text', CAST(id AS STRING)))"
        return frame.selectExpr("named_struct('k', id) AS key", f"{value} AS value")


@pytest.mark.parametrize("kind", ["delta", "file"])
def test_a_frame_sink_says_beforehand_what_it_cannot_take(
    spark, tmp_path: Path, kind: str
) -> None:
    table = tmp_path / "out"
    plugin = DeltaSink if kind == "delta" else FileSink
    config = {"path": str(table)} | ({"format": "json"} if kind == "file" else {})
    sink = plugin.task(plugin.config_def().parse(config))
    reader = FrameReader(Tombstones(NO_KEYS))
    running = flow(spark, [sink], source=reader, dead_letters=dead_letters(tmp_path))
    counts = running.run(batch(1, 0, 20))
    error = "TASK_PUT headrace.sdk.errors.RecordError"
    assert counts == Counts(read=20, written=16, rejected=4, causes={error: 4})
    found = {(row["key"], row["value"]) for row in read_topic(spark, tmp_path, "copy.dlq")}
    assert found == {(f'{{"k":{n}}}', None) for n in range(0, 20, 5)}


def test_a_null_where_a_table_wants_none_is_dead_lettered_with_its_field(
    spark, tmp_path: Path
) -> None:
    table = tmp_path / "out"
    spark.sql(f"CREATE TABLE delta.`{table}` (id BIGINT, text STRING NOT NULL) USING delta")
    null = Step(transform(Cast, "c", spec="id:int64"))
    sink = DeltaSink.task(DeltaSink.config_def().parse({"path": str(table)}))

    class Nulls(FrameSource):
        def latest(self, start, limit):
            return start

        def read(self, spark, start, end):
            value = "named_struct('id', id, 'text', IF(id = 3, NULL, CAST(id AS STRING)))"
            return spark.range(0, 6, 1, 2).selectExpr(f"{value} AS value")

    running = flow(
        spark,
        [sink],
        null,
        source=FrameReader(Nulls(NO_KEYS)),
        dead_letters=dead_letters(tmp_path),
    )
    counts = running.run(batch(1, 0, 6))
    assert (counts.read, counts.written, counts.rejected) == (6, 5, 1)
    ((stage, _, message, value),) = causes(spark, tmp_path)
    assert (stage, value) == ("TASK_PUT", '{"id":3,"text":null}')
    assert message == "text: A record has a null where the table's column is NOT NULL."
    assert sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 4, 5]


class Noted(RecordTransform):
    """Writes down each record that it sees."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("file", ConfigType.STRING, doc="")

    def transform(self, record: Record) -> Record:
        with Path(self.config.get_str("file")).open("a") as file:
            file.write(f"{record.value['id']}\n")
        return record


def test_each_of_two_sinks_has_its_counts_and_code_runs_once_for_both(
    spark, tmp_path: Path
) -> None:
    noted = tmp_path / "noted"
    first, second = Refusing(tmp_path / "out"), Kept()
    code = Step(transform(Noted, "noted", file=str(noted)))
    running = flow(spark, [first, second], code, dead_letters=dead_letters(tmp_path, None))
    assert running.run(batch(1, 0, 3)) == Counts(read=3, written=3)
    assert sorted(int(line) for line in noted.read_text().split()) == [0, 1, 2]
    counts = running.run(batch(2, 10, 50))
    assert (counts.read, counts.written, counts.rejected) == (40, 36, 4)
    assert counts.sinks == {
        "0": {"written": 36, "rejected": 4},
        "1": {"written": 40, "rejected": 0},
    }
    assert len(second.rows) == 43


class Moody(Noted):
    """Fails every other time that it sees a record."""

    def transform(self, record: Record) -> Record:
        file = Path(self.config.get_str("file"))
        seen = file.read_text().split() if file.exists() else []
        super().transform(record)
        if (len(seen) + record.value["id"]) % 4 == 0:
            message = "not now"
            raise ValueError(message)
        return record


@pytest.mark.parametrize("sinks", [1, 2])
def test_code_that_need_not_give_the_same_twice_is_called_once_for_each_record(
    spark, tmp_path: Path, sinks: int
) -> None:
    noted = tmp_path / "noted"
    code = Step(transform(Moody, "moody", file=str(noted)))
    kept = [Kept() for _ in range(sinks)]
    running = flow(spark, kept, code, dead_letters=dead_letters(tmp_path))
    counts = running.run(batch(1, 0, 40))
    assert sorted(int(line) for line in noted.read_text().split()) == list(range(40))
    assert counts.read == 40
    assert counts.rejected > 0
    assert counts.balanced
    told = [
        int(json.loads(row["value"])["id"]) for row in read_topic(spark, tmp_path, "copy.dlq")
    ]
    assert len(told) == counts.rejected
    for sink in kept:
        assert sorted([*told, *(row["value"]["id"] for row in sink.rows)]) == list(range(40))
