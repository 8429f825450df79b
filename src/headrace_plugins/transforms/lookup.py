"""Lookup: adds fields from a table or an HTTP service."""

from __future__ import annotations

import fcntl
import re
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as url_quote

import httpx2
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from typing_extensions import override

from headrace.sdk import (
    ArrowTransform,
    CodeTransform,
    ConfigError,
    FrameTransform,
    RecordError,
    RetriableError,
    Schema,
    Type,
    UnfitRecordError,
)
from headrace.sdk.arrow import to_arrow
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Meaning,
    NullOr,
    Password,
    Range,
    Settings,
    ValidString,
    setting,
)
from headrace.sdk.sparktypes import parse_ddl
from headrace.sdk.sqltext import FieldPath, literal, quote, sql_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import TransformBatch, TransformContext
    from headrace.sdk.config import Config


class _Part(CodeTransform):
    """The common base of the two implementations of ``Lookup``."""

    settings: LookupSettings

    @property
    @override
    def title(self) -> str:
        return "Lookup"

    @property
    def added(self) -> Schema:
        """The fields to add, with their names in the table or the response."""
        return parse_ddl(self.settings.fields, field="fields")

    @override
    def output(self, value: Schema) -> Schema:
        if value.type is not Type.STRUCT:
            raise UnfitRecordError(message="Lookup needs values with fields.")
        prefix = self.settings.prefix
        fields = {field.name: field.schema for field in value.fields}
        fields |= {prefix + f.name: f.schema.replaced(optional=True) for f in self.added.fields}
        return value.with_fields(fields)


@dataclass(frozen=True, slots=True)
class Pace:
    """A rate limiter that spaces requests evenly, through a file that all workers share.

    Dividing the limit by the number of workers would waste it whenever some are idle. A call
    costs about 20 microseconds. Workers on other machines need a shared file system with
    working locks, and synchronized clocks.

    The file's folder must exist. To reset the limiter, remove the file while no worker waits.
    """

    per_second: float
    path: str
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def wait(self) -> None:
        """Wait until the next request is allowed. Thread-safe and process-safe."""
        with Path(self.path).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            file.seek(0)
            turn = max(float(file.read() or 0), self.clock())
            file.truncate(0)
            file.write(repr(turn + 1 / self.per_second))
        self.sleep(max(0.0, turn - self.clock()))


class TableLookup(_Part, FrameTransform):
    """Joins a table. The table is refreshed between batches, never within a batch."""

    repeatable = True
    _table: DataFrame | None = None
    _read_at = 0.0
    _batch = -1

    @override
    def frame(self, records: DataFrame, batch: TransformBatch) -> DataFrame:
        table = self._current(records.sparkSession, batch)
        paths = [FieldPath.parse(on.partition(":")[0], "V2").steps for on in self.settings.on]
        keys = [f"CAST(value.{'.'.join(map(quote, steps))} AS STRING)" for steps in paths]
        side = records.selectExpr("*", *(f"{sql} AS __on{n}" for n, sql in enumerate(keys)))
        on = [F.expr(f"__on{n} = __key{n}") for n in range(len(keys))]
        joined = side.join(F.broadcast(table), on, "left")
        return joined.selectExpr(*(self._column(name, records) for name in records.columns))

    def _column(self, name: str, records: DataFrame) -> str:
        missed = "applies AND value IS NOT NULL AND __found IS NULL"
        if name == "value":
            return f"{self._value(records)} AS value"
        if name == "dropped" and self.settings.missing == "drop":
            return f"IF({missed}, {literal(self.alias)}, dropped) AS dropped"
        if name == "error" and self.settings.missing == "reject":
            keys = ", ".join(f"__on{n}" for n in range(len(self.settings.on)))
            message = f"concat('The table has no row for ', concat_ws(', ', {keys}), '.')"
            return f"IF({missed}, {self.rejection('LookupError', message)}, error) AS error"
        return quote(name)

    def _value(self, records: DataFrame) -> str:
        """Return SQL for the value with the fields of the table."""
        kind = records.schema["value"].dataType
        added = [self.settings.prefix + field.name for field in self.added.fields]
        columns = {name: f"value.{quote(name)}" for name in kind.fieldNames()}  # type: ignore[attr-defined]  # a struct
        for n, name in enumerate(added):
            # A record that the step does not apply to keeps its own value.
            columns[name] = f"IF(applies, __field{n}, {columns.get(name, 'NULL')})"
        pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in columns.items())
        return f"IF(value IS NULL, NULL, named_struct({pairs}))"

    def _current(self, spark: SparkSession, batch: TransformBatch) -> DataFrame:
        age = time.monotonic() - self._read_at
        # A batch is computed several times and must see the same table each time.
        old = batch.id != self._batch and age * 1000 >= self.settings.refresh_ms
        if self._table is None or old:
            self._table, self._read_at = self._read(spark), time.monotonic()
        self._batch = batch.id
        return self._table

    def _read(self, spark: SparkSession) -> DataFrame:
        path, most = self.settings.table, self.settings.max_rows
        names = [text.rpartition(":")[2] for text in self.settings.on]
        keys = [f"CAST({quote(name)} AS STRING) AS __key{n}" for n, name in enumerate(names)]
        columns = [
            f"try_cast({quote(f.name)} AS {sql_type(f.schema)}) AS __field{n}"
            for n, f in enumerate(self.added.fields)
        ]
        try:
            source = spark.read.option("header", "true").format(self.settings.format)
            table = source.load(path).selectExpr(*keys, *columns, "true AS __found")
        except AnalysisException as error:
            raise self._wrong(
                problem=f"The table {path} cannot be read: {error.getMessage()}"
            ) from error
        rows = table.limit(most + 1).toArrow()
        if rows.num_rows > most:
            raise self._wrong(problem=f"{path} has more than {most} rows.")
        groups = rows.group_by([f"__key{n}" for n in range(len(names))])
        if groups.aggregate([([], "count_all")]).num_rows != rows.num_rows:
            raise self._wrong(
                problem=f"{path} has more than one row for the same {', '.join(names)}."
            )
        return spark.createDataFrame(rows)

    def _wrong(self, *, problem: str) -> ConfigError:
        return ConfigError(
            problem=problem,
            field=f"transforms.{self.alias}.table",
            fix="Use a small table with the columns of on and fields and one row for each key.",
        )


_NAME = re.compile(r"\{([^{}]+)\}")
_BACKOFF_SECONDS = 0.2
_NOT_FOUND = 404
_BUSY = 429
_SERVER = 500


class ServiceLookup(_Part, ArrowTransform):
    """Requests each distinct URL of a batch once."""

    _pace: Pace | None = None

    @override
    def start(self, context: TransformContext) -> None:
        super().start(context)
        rate = self.settings.rate_limit
        if rate is not None:
            path = context.state / "pace"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            # One limit for the whole task: all executors see the same folder.
            self._pace = Pace(rate, str(path))

    @override
    def output(self, value: Schema) -> Schema:
        after = super().output(value)
        for name in _NAME.findall(self.settings.url or ""):
            schema: Schema | None = value
            for step in FieldPath.parse(name, "V2").steps:
                field = schema.field(step) if schema and schema.type is Type.STRUCT else None
                schema = field.schema if field else None
            if schema is None:
                raise UnfitRecordError(message=f"Field does not exist: {name}")
        return after

    @override
    def transform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        url, value = self.settings.url or "", rows.column("value")
        fields = {
            name: pc.struct_field(value, list(FieldPath.parse(name, "V2").steps)).to_pylist()
            for name in _NAME.findall(url)
        }
        valid = value.is_valid().to_pylist()
        urls = [
            _filled(url, {name: values[at] for name, values in fields.items()})
            if valid[at]
            else None
            for at in range(rows.num_rows)
        ]
        service = _service(self.settings, self._pace)
        answers = service.answers({url for url in urls if url is not None})
        for found in answers.values():
            if isinstance(found, Refused):
                raise RecordError(problem=found.problem)
        missing = [u is None or answers[u] is None for u in urls]
        how = self.settings.missing
        if how == "reject" and any(m and v for m, v in zip(missing, valid, strict=True)):
            raise RecordError(problem="The service has no data for the record (404).")
        after = self._added(rows, [answers[u] if u is not None else None for u in urls], valid)
        if how != "drop":
            return after
        keep = [not (m and v) for m, v in zip(missing, valid, strict=True)]
        return after.filter(pa.array(keep, pa.bool_()))

    def _added(
        self, rows: pa.RecordBatch, found: list[Any], valid: list[bool]
    ) -> pa.RecordBatch:
        value = rows.column("value")
        columns = {f.name: value.field(f.name) for f in value.type}
        for field in to_arrow(self.added):
            texts = [(answer or {}).get(field.name) for answer in found]
            columns[self.settings.prefix + field.name] = _typed(texts, field.type)
        mask = pa.array([not there for there in valid], pa.bool_())
        made = pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=mask)
        return pa.RecordBatch.from_pydict({"value": made, "row": rows.column("row")})


@dataclass(frozen=True, slots=True)
class Refused:
    """A permanent error of the service for one URL."""

    problem: str


class Service:
    """The HTTP client of one worker process, with a cache of the responses."""

    def __init__(self, settings: LookupSettings, pace: Pace | None) -> None:
        """Create the client; it connects at the first request."""
        self._settings = settings
        self._pace = pace
        secret = settings.authorization
        headers = {} if secret is None else {"Authorization": secret.value}
        timeout = settings.timeout_ms / 1000
        self._client = httpx2.Client(timeout=timeout, headers=headers, follow_redirects=True)
        self._pool = ThreadPoolExecutor(settings.parallel)
        self._known: OrderedDict[str, tuple[float, Any]] = OrderedDict()

    def answers(self, urls: Iterable[str]) -> dict[str, Any]:
        """Return the JSON object, None (for 404) or Refused for each URL.

        Raises RetriableError if the service is unavailable after all retries.
        """
        found: dict[str, Any] = {}
        unknown = []
        for url in urls:
            at, answer = self._known.get(url, (float("-inf"), None))
            if (time.monotonic() - at) * 1000 < self._settings.refresh_ms:
                found[url] = answer
            else:
                unknown.append(url)
        for url, answer in zip(unknown, self._pool.map(self._ask, unknown), strict=True):
            found[url] = answer
            self._known[url] = time.monotonic(), answer
            self._known.move_to_end(url)
        while len(self._known) > self._settings.cache_size:
            self._known.popitem(last=False)
        return found

    def _ask(self, url: str) -> Any:
        problem = ""
        for attempt in range(self._settings.retries + 1):
            if attempt:
                time.sleep(_BACKOFF_SECONDS * 2 ** (attempt - 1))
            if self._pace is not None:
                self._pace.wait()
            try:
                answer = self._client.get(url)
            except httpx2.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if answer.status_code != _BUSY and answer.status_code < _SERVER:
                return _read(answer)
            problem = f"status {answer.status_code}"
        raise RetriableError(problem=f"The lookup service is not available: {problem}.")


@lru_cache(maxsize=16)
def _service(settings: LookupSettings, pace: Pace | None) -> Service:
    return Service(settings, pace)


def _read(answer: httpx2.Response) -> Any:
    if answer.status_code == _NOT_FOUND:
        return None
    if not answer.is_success:
        return Refused(f"The lookup service returned status {answer.status_code}.")
    try:
        found = answer.json()
    except ValueError:
        return Refused("The lookup service returned invalid JSON.")
    if not isinstance(found, dict):
        return Refused("The lookup service returned JSON that is not an object.")
    return found


def _filled(url: str, fields: dict[str, Any]) -> str | None:
    """Return the URL to request; None if a field is null, as nothing can be found then."""
    if any(value is None for value in fields.values()):
        return None
    return _NAME.sub(lambda name: url_quote(str(fields[name.group(1)]), safe=""), url)


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert values to a type; values that do not fit become null."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.concat_arrays([_one(value, kind) for value in values])


def _one(value: Any, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError):
        try:
            return pa.array([str(value)]).cast(kind)
        except pa.ArrowException:
            return pa.nulls(1, kind)


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    table, url = props.get("table"), props.get("url")
    if (table is None) == (url is None):
        yield ConfigError(
            problem="Either table or url must be set.", field="table", fix="Set one of them."
        )
    if table is not None and not props.get("on"):
        yield ConfigError(
            problem="table requires on.", field="on", fix="Set on to the fields to look up."
        )
    if url is not None and not re.match(r"https?://.*\{.+\}", str(url)):
        yield ConfigError(
            problem=f"Invalid URL {url!r}; expected an HTTP URL with a field in braces.",
            field="url",
            fix="Write it as https://example.com/items/{id}.",
        )
    if props.get("fields") is not None:
        try:
            parse_ddl(str(props["fields"]), field="fields")
        except ConfigError as error:
            yield error


class LookupSettings(Settings):
    """The settings of ``Lookup``."""

    fields: str = setting(
        "The fields to add, with their names in the table or the response and their types, "
        "such as 'name string, rate double'. Values that do not fit the type become null.",
        importance=Importance.HIGH,
    )
    prefix: str = setting(
        "The prefix of the names of added fields. An existing field of the value with the "
        "same name is replaced.",
        default="",
    )
    missing: str = setting(
        "How to handle records for which nothing is found: set the added fields to null, drop "
        "the record, or reject it.",
        default="null",
        validator=ValidString("null", "drop", "reject"),
        importance=Importance.MEDIUM,
    )
    refresh_ms: int = setting(
        "The maximum age of the table or a cached response, in milliseconds, before it is "
        "read again.",
        default=300_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
        importance=Importance.MEDIUM,
    )
    table: str | None = setting(
        "The path of a table: a Delta table, or files that Spark reads.",
        default=None,
        importance=Importance.HIGH,
        meaning=Meaning.PATH,
    )
    format: str = setting(
        "The table's format. CSV needs a header.",
        default="delta",
        validator=ValidString("delta", "parquet", "csv", "json", "orc"),
    )
    on: tuple[str, ...] = setting(
        "For a table: the value's fields to look up, as field, or field:column if the "
        "table's column has another name. A dot separates the names of nested fields. Values "
        "are compared as strings.",
        default=(),
        importance=Importance.HIGH,
    )
    max_rows: int = setting(
        "For a table: the maximum number of rows, as the table is kept in memory. A larger "
        "table is an error.",
        default=1_000_000,
        validator=Range(at_least=1),
    )
    url: str | None = setting(
        "The URL of a service that responds to GET with a JSON object. {field} in the URL is "
        "replaced by a field of the value; a dot separates the names of nested fields. A "
        "response of 404 means that nothing is found.",
        default=None,
        importance=Importance.HIGH,
    )
    authorization: Password | None = setting(
        "For a service: the Authorization header, such as 'Bearer ${env:TOKEN}'.", default=None
    )
    timeout_ms: int = setting(
        "For a service: the timeout of a request, in milliseconds.",
        default=5_000,
        validator=Range(at_least=1),
    )
    retries: int = setting(
        "For a service: how many times a request is retried if there is no response, or the "
        "status is 429 or 5xx, before the batch is retried as a whole.",
        default=2,
        validator=Range(at_least=0),
    )
    rate_limit: float | None = setting(
        "For a service: the maximum number of requests per second of the whole task, however "
        "many Python workers it has.",
        default=None,
        validator=NullOr(Range(at_least=0.001)),
        importance=Importance.MEDIUM,
    )
    parallel: int = setting(
        "For a service: the maximum number of concurrent requests of each worker.",
        default=8,
        validator=Range(at_least=1),
    )
    cache_size: int = setting(
        "For a service: the maximum number of responses that each worker caches.",
        default=100_000,
        validator=Range(at_least=1),
    )

    rules = (_check,)


class Lookup(CodeTransform):
    """Adds fields to each record from a small table or an HTTP service.

    A table is read as a whole, joined in memory, and refreshed after `refresh.ms`. A service
    receives one request for each distinct URL from Spark's Python workers, which cache the
    responses. If it returns an error for a record, the record is rejected; while it is
    unavailable, the batch is retried.
    """

    settings: LookupSettings

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        settings = LookupSettings.from_config(config)
        path = re.sub(r"^file:(//)?(?=/)", "", settings.table or "")
        if not path or re.match(r"\w+:", path) or re.search(r"[*?\[{]", path):
            return  # another file system, or a pattern: checked when the connector runs
        fix = "Create the table first, or correct its path."
        if not Path(path).exists():
            yield ConfigError(f"{path} does not exist.", field="table", fix=fix)
        elif settings.format == "delta" and not (Path(path) / "_delta_log").is_dir():
            fix = "Name the folder of a Delta table, or set format."
            yield ConfigError(f"{path} is not a Delta table.", field="table", fix=fix)

    @override
    def runner(self) -> CodeTransform:
        kind = ServiceLookup if self.settings.url is not None else TableLookup
        return kind(self.alias, self.config)
