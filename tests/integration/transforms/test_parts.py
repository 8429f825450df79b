"""Edits of fields at any depth give SQL that Spark computes as meant."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from headrace.sdk import ConfigError, Schema, Struct, UnfitRecordError, ValueExpr
from headrace.sdk.sqltext import FieldPath, sql_value

pytestmark = pytest.mark.spark

INNER = Schema.struct(
    {"x": Schema.int32(), "y": Schema.string(optional=True)},
    optional=True,
    name="inner",
    parameters={"p": "1"},
)
OUTER = Schema.struct({"in": INNER, "b.c": Schema.int64()}, optional=True)
ROW = Schema.struct(
    {"out": OUTER, "n": Schema.int32(optional=True, default=7)}, name="row", version=2
)
ROWS = """VALUES
  (named_struct('out', named_struct('in', named_struct('x', 1, 'y', 'one'), 'b.c', 2L),
    'n', 3)),
  (named_struct('out', named_struct('in', NULL, 'b.c', 4L), 'n', NULL)),
  (named_struct('out', NULL, 'n', 5)) AS t(value)"""
TREE = Schema.map(
    Schema.string(), Schema.map(Schema.string(), Schema.int64(optional=True), optional=True)
)
MAPS = "VALUES (map('a', map('x', 1L, 'y', 2L), 'b', NULL)), (map('c', map())), (NULL) AS t(m)"

PART = ValueExpr.of("value", ROW)
MAP = ValueExpr.of("m", TREE.replaced(optional=True), schemaless=True)


def path(text: str) -> FieldPath:
    return FieldPath.parse(text, "V2")


def computed(spark, rows: str, **columns: str) -> dict[str, list[object]]:
    sql = ", ".join(f"{column} AS {name}" for name, column in columns.items())
    frame = spark.sql(f"SELECT {sql} FROM {rows}")  # noqa: S608 - of constants here
    found = [row.asDict(recursive=True) for row in frame.collect()]
    return {name: [row[name] for row in found] for name in columns}


def test_fields_are_edited_at_any_depth_and_null_parents_stay_null(spark) -> None:
    found_x = PART.find(path("out.in.x"))
    found_c = PART.find(path("out.`b.c`"))
    assert found_x is not None
    assert found_c is not None
    parts = {
        "changed": PART.changed(
            {path("out.in.x"): lambda sql, _: (f"CAST({sql} AS STRING)", Schema.string())}
        ),
        "removed": PART.removed([path("out.in.x"), path("n"), path("no.such"), path("n.x")]),
        "renamed": PART.renamed({path("out.in"): "inside", path("out.in.x"): "z"}),
        "kept": PART.kept([path("out.in.y"), path("no"), path("n.x")]),
        "inserted": PART.inserted(path("out.in.new"), "'!'", Schema.string()),
        "filled": PART.defaulted(),
    }
    found = computed(
        spark, ROWS, x=found_x[0], c=found_c[0], **{n: part.sql() for n, part in parts.items()}
    )
    assert (found["x"], found["c"]) == ([1, None, None], [2, 4, None])
    assert found_x[1] == Schema.int32(optional=True)
    values = {name: [_plain(value) for value in found[name]] for name in parts}
    assert values == {
        "changed": [
            [{"in": {"x": "1", "y": "one"}, "b.c": 2}, 3],
            [{"in": None, "b.c": 4}, None],
            [None, 5],
        ],
        "removed": [[{"in": {"y": "one"}, "b.c": 2}], [{"in": None, "b.c": 4}], [None]],
        "renamed": [
            [{"inside": {"z": 1, "y": "one"}, "b.c": 2}, 3],
            [{"inside": None, "b.c": 4}, None],
            [None, 5],
        ],
        "kept": [[{"in": {"y": "one"}}], [{"in": None}], [None]],
        "inserted": [
            [{"in": {"x": 1, "y": "one", "new": "!"}, "b.c": 2}, 3],
            [{"in": None, "b.c": 4}, None],
            [None, 5],
        ],
        "filled": [
            [{"in": {"x": 1, "y": "one"}, "b.c": 2}, 3],
            [{"in": None, "b.c": 4}, 7],
            [None, 5],
        ],
    }
    renamed = parts["renamed"].schema
    assert renamed is not None
    assert (renamed.name, renamed.version) == ("row", 2)
    outer = renamed.fields[0].schema
    inner = outer.fields[0].schema
    assert (inner.name, inner.parameters, inner.optional) == ("inner", {"p": "1"}, True)
    assert renamed.fields[1].schema == Schema.int32(optional=True, default=7)


def _plain(value: object) -> object:
    assert isinstance(value, dict)
    return list(value.values())


def test_maps_without_schema_are_edited_like_structs(spark) -> None:
    found_x = MAP.find(path("a.x"))
    assert found_x is not None
    parts = {
        "changed": MAP.changed({path("a.x"): lambda sql, schema: (f"{sql} + 10", schema)}),
        "removed": MAP.removed([path("a.x"), path("c")]),
        "renamed": MAP.renamed({path("a.x"): "y", path("b"): "d"}),
        "kept": MAP.kept([path("a"), path("c")]),
        "inserted": MAP.inserted(path("a.z"), "9L", Schema.int64()),
    }
    found = computed(spark, MAPS, x=found_x[0], **{n: part.sql() for n, part in parts.items()})
    assert found == {
        "x": [1, None, None],
        "changed": [{"a": {"x": 11, "y": 2}, "b": None}, {"c": {}}, None],
        "removed": [{"a": {"y": 2}, "b": None}, {}, None],
        "renamed": [{"a": {"y": 1}, "d": None}, {"c": {}}, None],
        "kept": [{"a": {"x": 1, "y": 2}}, {"c": {}}, None],
        "inserted": [{"a": {"x": 1, "y": 2, "z": 9}, "b": None}, {"c": {}}, None],
    }
    with pytest.raises(ConfigError, match="cannot be"):
        MAP.changed({path("a.x"): lambda _sql, _schema: ("''", Schema.string())})


def test_what_does_not_fit_is_said_in_kafkas_words() -> None:
    with pytest.raises(UnfitRecordError, match="field name duplication n"):
        PART.renamed({path("out"): "n"})
    with pytest.raises(UnfitRecordError, match="field name duplication x"):
        PART.inserted(path("out.in.x"), "1", Schema.int32())
    with pytest.raises(UnfitRecordError, match="Cannot look up fields on non-struct type"):
        PART.find(path("n.x"))
    plain = ValueExpr.of("value", ROW, schemaless=True)
    with pytest.raises(UnfitRecordError, match=r"found: java\.lang\.Integer") as caught:
        plain.find(path("n.x"))
    assert caught.value.where == "value.`n` IS NOT NULL"
    assert plain.inserted(path("n"), "1", Schema.int32()).fields["n"] == "1"


def test_defaults_of_every_type_become_constants(spark) -> None:
    inner = Schema.struct({"a": Schema.int8(), "b": Schema.string(optional=True)})
    values = [
        (Schema.int8(), -128),
        (Schema.int64(), -(2**63)),
        (Schema.float64(), 1e-300),
        (Schema.boolean(), False),
        (Schema.string(), "it's a \\ and\n`"),
        (Schema.bytes(), b"\x00\xff"),
        (Schema.decimal(2), Decimal("-1E+3")),
        (Schema.date(), date(1969, 12, 31)),
        (Schema.timestamp(), datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        (Schema.array(Schema.int16()), [1, 2]),
        (Schema.array(Schema.string()), []),
        (Schema.map(Schema.string(), Schema.int32()), {"a": 1}),
        (Schema.map(Schema.string(), Schema.int32()), {}),
    ]
    columns = {f"c{i}": sql_value(schema, value) for i, (schema, value) in enumerate(values)}
    columns["struct"] = sql_value(inner, Struct(inner, {"a": 1}))
    columns["time"] = sql_value(Schema.time(), time(0, 0, 1, 5))
    columns["nan"] = sql_value(Schema.float32(), float("nan"))
    columns["nothing"] = sql_value(inner, None)
    found = {name: rows[0] for name, rows in computed(spark, "VALUES (1)", **columns).items()}
    assert found.pop("struct") == {"a": 1, "b": None}
    assert found.pop("time") == 1_000_005
    assert str(found.pop("nan")) == "nan"
    assert found.pop("nothing") is None
    found["c8"] = found["c8"].astimezone(UTC)  # type: ignore[attr-defined]
    assert list(found.values()) == [
        bytearray(value) if isinstance(value, bytes) else value for _, value in values
    ]
