"""Cases of the field transforms: with and without a schema, at depth, and what is refused."""

from datetime import date
from decimal import Decimal
from typing import Any

from tests.integration.transforms.outcomes import with_schema, without_schema

from headrace.sdk import Schema, Transform, ValueExpr
from headrace_plugins.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    ReplaceField,
    ValueToKey,
)
from headrace_plugins.transforms.masks import MaskField

DATA = "org.apache.kafka.connect.errors.DataException"
BUILDER = "org.apache.kafka.connect.errors.SchemaBuilderException"
V2 = {"field.syntax.version": "V2"}
KEEP_NULLS = {"replace.null.with.default": "false"}

INNER = Schema.struct(
    {"x": Schema.int32(optional=True, default=1), "y": Schema.string()}, optional=True
)
ROW = Schema.struct(
    {
        "in": INNER,
        "a": Schema.int32(optional=True, default=5),
        "b": Schema.string(),
        "c.d": Schema.int64(optional=True),
    },
    name="row",
    version=2,
    doc="a row",
    parameters={"p": "q"},
)
FULL = {"in": {"x": 7, "y": "why"}, "a": 2, "b": "bee", "c.d": 4}
SPARSE = {"b": "bee"}
DEEP = {"in": {"y": "why"}, "b": "bee"}

Case = tuple[type[Transform], dict[str, str], ValueExpr, Any]


def row(value: Any) -> ValueExpr:
    return with_schema(ROW, value)


def null(schema: Schema) -> ValueExpr:
    return with_schema(schema.replaced(optional=True), None)


def fault(message: str, error: str = DATA) -> dict[str, str]:
    return {"error": error, "message": message}


def structs_only(purpose: str, found: str) -> dict[str, str]:
    return fault(f"Only Struct objects supported for [{purpose}], found: {found}")


def maps_only(purpose: str, found: str) -> dict[str, str]:
    kind = "Map objects supported in absence of schema"
    return fault(f"Only {kind} for [{purpose}], found: {found}")


PRICE = with_schema(Schema.struct({"d": Schema.decimal(2)}), {"d": Decimal("1.00")})
REPLACE: list[Case] = [
    (ReplaceField, {"exclude": "a,in", "include": "a,b"}, row(FULL), {"b": "bee"}),
    (ReplaceField, {"exclude": "in,c.d"}, row(SPARSE), {"a": 5, "b": "bee"}),
    (ReplaceField, {"include": "a", **KEEP_NULLS}, row(SPARSE), {"a": None}),
    (ReplaceField, {"include": "a,b", "renames": "a:b,b:a"}, row(FULL), {"b": 2, "a": "bee"}),
    (
        ReplaceField,
        {"renames": "a:b"},
        row(FULL),
        fault("Cannot create field because of field name duplication b", BUILDER),
    ),
    (ReplaceField, {"exclude": "a"}, null(ROW), None),
    (ReplaceField, {"renames": "a:b"}, null(ROW), None),
    (
        ReplaceField,
        {"include": "in.y,c.d,`c.d`", "renames": "in.y:z,in:out", **V2},
        row(FULL),
        {"out": {"z": "why"}, "c.d": 4},
    ),
    (ReplaceField, {"exclude": "a", "renames": "b:c"}, without_schema({"b": 1}), {"c": 1}),
    (ReplaceField, {"renames": "b:a"}, without_schema({"a": 1, "b": 2}), {"a": 2}),
    (
        ReplaceField,
        {"exclude": "a"},
        without_schema("text"),
        maps_only("field replacement", "java.lang.String"),
    ),
    (ReplaceField, {"exclude": "a"}, without_schema(None), None),
]
EXTRACT: list[Case] = [
    (ExtractField, {"field": "a"}, row(SPARSE), 5),
    (ExtractField, {"field": "a", **KEEP_NULLS}, row(SPARSE), None),
    (ExtractField, {"field": "in"}, row(FULL), {"x": 7, "y": "why"}),
    (ExtractField, {"field": "c.d"}, row(FULL), 4),
    (ExtractField, {"field": "in.x", **V2}, row(DEEP), 1),
    (ExtractField, {"field": "in.x", **V2}, row(SPARSE), None),
    (ExtractField, {"field": "in.x", **V2}, without_schema({"in": None}), None),
    (
        ExtractField,
        {"field": "in.x", **V2},
        without_schema({"in": 1}),
        maps_only("nested field access", "java.lang.Long"),
    ),
    (
        ExtractField,
        {"field": "b.x", **V2},
        row(FULL),
        fault("Cannot look up fields on non-struct type"),
    ),
    (
        ExtractField,
        {"field": "in.zz", **V2},
        row(FULL),
        fault("Unknown field: in.zz", "java.lang.IllegalArgumentException"),
    ),
    (
        ExtractField,
        {"field": "a"},
        with_schema(Schema.date(), date(2020, 1, 1)),
        structs_only("field extraction", "java.util.Date"),
    ),
    (ExtractField, {"field": "a"}, null(ROW), None),
    (ExtractField, {"field": "a"}, without_schema(None), None),
]
HOIST: list[Case] = [
    (HoistField, {"field": "h"}, null(ROW), {"h": None}),
    (HoistField, {"field": "h"}, without_schema(None), {"h": None}),
    (HoistField, {"field": "h.i"}, with_schema(Schema.int8(), 1), {"h.i": 1}),
    (HoistField, {"field": "h.i", **V2}, with_schema(Schema.int8(), 1), {"h": {"i": 1}}),
]
MASK: list[Case] = [
    (
        MaskField,
        {"fields": "h,b,c", "replacement": "1"},
        without_schema({"h": [1], "b": True, "c": [2]}),
        fault("Cannot mask value of type class java.util.ArrayList with custom replacement."),
    ),
    (MaskField, {"fields": "d", "replacement": "7.5"}, PRICE, {"d": Decimal("7.50")}),
    (
        MaskField,
        {"fields": "d", "replacement": "7.123"},
        PRICE,
        fault(
            "Decimal value has mismatching scale for given Decimal schema. "
            "Schema has scale 2, value has scale 3."
        ),
    ),
    (
        MaskField,
        {"fields": "d", "replacement": "x"},
        PRICE,
        fault("Unable to convert x (class java.lang.String) to number"),
    ),
    (MaskField, {"fields": "in"}, row(SPARSE), {"in": None, "a": 5, "b": "bee", "c.d": None}),
    (
        MaskField,
        {"fields": "in"},
        row(FULL),
        fault("Cannot mask value of type: class org.apache.kafka.connect.data.Struct"),
    ),
    (
        MaskField,
        {"fields": "a,b,zz", "replacement": "300", **KEEP_NULLS},
        row(SPARSE),
        {"in": None, "a": None, "b": "300", "c.d": None},
    ),
    (MaskField, {"fields": "zz"}, without_schema({"a": 1}), {"a": 1, "zz": None}),
    (MaskField, {"fields": "a"}, null(ROW), structs_only("mask fields", "null")),
    (MaskField, {"fields": "a"}, without_schema(None), maps_only("mask fields", "null")),
    (
        MaskField,
        {"fields": "a"},
        without_schema(True),
        maps_only("mask fields", "java.lang.Boolean"),
    ),
    (
        MaskField,
        {"fields": "in.y", "replacement": "*", **V2},
        row(FULL),
        {**FULL, "in": {"x": 7, "y": "*"}},
    ),
    (
        MaskField,
        {"fields": "flag", "replacement": "1"},
        with_schema(Schema.struct({"flag": Schema.boolean()}), {"flag": True}),
        fault("Cannot mask value of type class java.lang.Boolean with custom replacement."),
    ),
    (
        MaskField,
        {"fields": "n", "replacement": "300.7"},
        with_schema(Schema.struct({"n": Schema.int8()}), {"n": 1}),
        {"n": 44},
    ),
]
KEYS: list[Case] = [
    (
        ValueToKey,
        {"fields": "zz"},
        null(ROW),
        structs_only("copying fields from value to key", "null"),
    ),
    (ValueToKey, {"fields": "b,a"}, row(SPARSE), {"b": "bee", "a": 5}),
    (ValueToKey, {"fields": "a", **KEEP_NULLS}, row(SPARSE), {"a": None}),
    (ValueToKey, {"fields": "in.y,`c.d`", **V2}, row(FULL), {"y": "why", "c.d": 4}),
    (ValueToKey, {"fields": "a,zz"}, without_schema({"a": 1}), {"a": 1, "zz": None}),
    (ValueToKey, {"fields": "in.zz", **V2}, row(FULL), fault("Field does not exist: in.zz")),
    (
        ValueToKey,
        {"fields": "a,a"},
        row(FULL),
        fault("Cannot create field because of field name duplication a", BUILDER),
    ),
    (
        ValueToKey,
        {"fields": "a"},
        null(ROW),
        structs_only("copying fields from value to key", "null"),
    ),
    (
        ValueToKey,
        {"fields": "a"},
        with_schema(Schema.array(Schema.int8()), [1]),
        structs_only("copying fields from value to key", "java.util.ArrayList"),
    ),
]
FLATTEN: list[Case] = [
    (Flatten, {}, row(FULL), {"in.x": 7, "in.y": "why", "a": 2, "b": "bee", "c.d": 4}),
    (
        Flatten,
        {"delimiter": "_"},
        row(DEEP),
        {"in_x": 1, "in_y": "why", "a": 5, "b": "bee", "c.d": None},
    ),
    (Flatten, {}, row(SPARSE), {"in.x": None, "in.y": None, "a": 5, "b": "bee", "c.d": None}),
    (Flatten, {}, null(ROW), None),
    (Flatten, {}, without_schema({"a": {"b": {"c": [1]}}, "d": 2}), {"a.b.c": [1], "d": 2}),
    (
        Flatten,
        {},
        with_schema(
            Schema.struct({"m": Schema.map(Schema.string(), Schema.int8(), optional=True)}), {}
        ),
        fault(
            "Flatten transformation does not support MAP for record with schemas (for field m)."
        ),
    ),
    (
        Flatten,
        {},
        with_schema(
            Schema.struct(
                {"a": Schema.struct({"b": Schema.int8()}), "a.b": Schema.int8()},
            ),
            {"a": {"b": 1}, "a.b": 2},
        ),
        fault("Cannot create field because of field name duplication a.b", BUILDER),
    ),
    (Flatten, {}, without_schema(1), maps_only("flattening", "java.lang.Long")),
]
INSERT: list[Case] = [
    (InsertField, {"topic.field": "b"}, null(ROW), None),
    (
        InsertField,
        {
            "topic.field": "t!",
            "partition.field": "p",
            "static.field": "s?",
            "static.value": "v",
        },
        row(SPARSE),
        {"in": None, "a": 5, "b": "bee", "c.d": None, "t": "t", "p": None, "s": "v"},
    ),
    (
        InsertField,
        {"static.field": "in.z", "static.value": "v", **V2},
        row(FULL),
        {**FULL, "in": {"x": 7, "y": "why", "z": "v"}},
    ),
    (
        InsertField,
        {"static.field": "in.z", "static.value": "v", **V2},
        row(SPARSE),
        {"in": None, "a": 5, "b": "bee", "c.d": None},
    ),
    (
        InsertField,
        {"topic.field": "b"},
        row(FULL),
        fault("Cannot create field because of field name duplication b", BUILDER),
    ),
    (InsertField, {"topic.field": "b"}, without_schema({"b": 1}), {"b": "t"}),
    (InsertField, {"topic.field": "t"}, null(ROW), None),
    (InsertField, {"topic.field": "t"}, without_schema(None), None),
]

CASES = [*REPLACE, *EXTRACT, *HOIST, *MASK, *KEYS, *FLATTEN, *INSERT]
