"""SetSchemaMetadata on real Spark, with Kafka Connect's results."""

import pytest
from tests.integration.transforms.tried import Try, tried

from headrace.sdk import ConfigErrors, Schema, Struct
from headrace_plugins.transforms.fields import SetSchemaMetadata

pytestmark = pytest.mark.spark

ROW = Schema.struct(
    {"a": Schema.int32(optional=True, default=7)}, name="row", version=2, doc="a row"
)
VALUE = Struct.of(ROW, {"a": None})


def metadata(**config: str) -> Try:
    return Try(
        SetSchemaMetadata, {k.replace("_", "."): v for k, v in config.items()}, VALUE, ROW
    )


def test_a_schema_gets_its_name_and_version_and_keeps_the_rest() -> None:
    tries = [
        metadata(schema_name="new"),
        metadata(schema_version="3"),
        metadata(schema_name="", schema_version="-1"),
    ]
    schemas = [one.after().value.schema for one in tries]
    assert schemas == [
        ROW.replaced(name="new"),
        ROW.replaced(version=3),
        ROW.replaced(name="", version=-1),
    ]


def test_null_fields_get_their_defaults_and_what_has_no_fields_is_rejected(spark) -> None:
    named = {"schema.name": "new"}
    found = tried(
        spark,
        metadata(schema_name="new"),
        metadata(schema_name="new", replace_null_with_default="false"),
        Try(SetSchemaMetadata, named, VALUE, ROW, schemaless=True),
        Try(SetSchemaMetadata, named),
        Try(SetSchemaMetadata, named, None, None),
    )
    assert [one["value"] for one in found[:2]] == [{"a": 7}, {"a": None}]
    assert [one["error"] and one["error"]["message"] for one in found[2:]] == [
        "Schema required for [updating schema metadata]",
        "Cannot list fields on non-struct type",
        None,
    ]


def test_one_of_the_keys_is_needed() -> None:
    with pytest.raises(ConfigErrors, match="Neither schema name nor version configured"):
        SetSchemaMetadata.config_def().parse({})
