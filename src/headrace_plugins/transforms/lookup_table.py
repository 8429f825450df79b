"""Adds fields from a small table, which is joined in memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from typing_extensions import override

from headrace.sdk import ConfigError, FrameTransform
from headrace.sdk.sparktypes import parse_ddl
from headrace.sdk.sqltext import FieldPath, literal, quote, sql_type
from headrace_plugins.transforms.lookup_fields import LookupPart, widened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Schema, TransformBatch


class TableLookup(LookupPart, FrameTransform):
    """Joins a table that is read anew between batches, never within one."""

    repeatable = True
    _table: DataFrame | None = None
    _read_at = 0.0
    _batch = -1

    @override
    def output(self, value: Schema) -> Schema:
        return widened(value, self.config)

    @override
    def frame(self, records: DataFrame, batch: TransformBatch) -> DataFrame:
        table = self._current(records.sparkSession, batch)
        keys = [self._left(text) for text in self.config.get_list("on")]
        side = records.selectExpr("*", *(f"{sql} AS __on{n}" for n, sql in enumerate(keys)))
        on = [F.expr(f"__on{n} = __key{n}") for n in range(len(keys))]
        joined = side.join(F.broadcast(table), on, "left")
        return joined.selectExpr(*(self._column(name, records) for name in records.columns))

    def _column(self, name: str, records: DataFrame) -> str:
        missed = "applies AND value IS NOT NULL AND __found IS NULL"
        if name == "value":
            return f"{self._value(records)} AS value"
        if name == "dropped" and self.config.get_str("missing") == "drop":
            return f"IF({missed}, {literal(self.alias)}, dropped) AS dropped"
        if name == "error" and self.config.get_str("missing") == "reject":
            keys = ", ".join(f"__on{n}" for n in range(len(self.config.get_list("on"))))
            message = f"concat('The table has no row for ', concat_ws(', ', {keys}), '.')"
            return f"IF({missed}, {self.rejection('LookupError', message)}, error) AS error"
        return quote(name)

    def _value(self, records: DataFrame) -> str:
        """Return SQL for the value with the fields of the table."""
        kind = records.schema["value"].dataType
        prefix = self.config.get_str("prefix")
        added = parse_ddl(self.config.get_str("fields"), field="fields").fields
        columns = {name: f"value.{quote(name)}" for name in kind.fieldNames()}  # type: ignore[attr-defined]  # a struct
        for n, name in enumerate(prefix + field.name for field in added):
            # A record that is spared keeps what it has.
            columns[name] = f"IF(applies, __field{n}, {columns.get(name, 'NULL')})"
        pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in columns.items())
        return f"IF(value IS NULL, NULL, named_struct({pairs}))"

    def _left(self, text: str) -> str:
        steps = FieldPath.parse(text.partition(":")[0], "V2").steps
        return f"CAST(value.{'.'.join(map(quote, steps))} AS STRING)"

    def _current(self, spark: SparkSession, batch: TransformBatch) -> DataFrame:
        age = time.monotonic() - self._read_at
        # A batch is computed several times, and must see one table.
        old = batch.id != self._batch and age * 1000 >= self.config.get_int("refresh.ms")
        if self._table is None or old:
            self._table, self._read_at = self._read(spark), time.monotonic()
        self._batch = batch.id
        return self._table

    def _read(self, spark: SparkSession) -> DataFrame:
        path, most = self.config.get_str("table"), self.config.get_int("max.rows")
        fields = parse_ddl(self.config.get_str("fields"), field="fields").fields
        names = [text.rpartition(":")[2] for text in self.config.get_list("on")]
        keys = [f"CAST({quote(name)} AS STRING) AS __key{n}" for n, name in enumerate(names)]
        columns = [
            f"try_cast({quote(f.name)} AS {sql_type(f.schema)}) AS __field{n}"
            for n, f in enumerate(fields)
        ]
        try:
            source = spark.read.option("header", "true").format(self.config.get_str("format"))
            table = source.load(path).selectExpr(*keys, *columns, "true AS __found")
        except AnalysisException as error:
            raise self._wrong(
                problem=f"{path} cannot be looked up in: {error.getMessage()}"
            ) from error
        rows = table.limit(most + 1).toArrow()
        if rows.num_rows > most:
            raise self._wrong(problem=f"{path} has more than {most} rows.")
        counted = rows.group_by([f"__key{n}" for n in range(len(names))]).aggregate(
            [([], "count_all")]
        )
        if counted.num_rows != rows.num_rows:
            raise self._wrong(problem=f"{path} has several rows for one {', '.join(names)}.")
        return spark.createDataFrame(rows)

    def _wrong(self, *, problem: str) -> ConfigError:
        return ConfigError(
            problem=problem,
            field=f"transforms.{self.alias}.table",
            fix="Give a small table with one row for each key, with these columns and fields.",
        )
