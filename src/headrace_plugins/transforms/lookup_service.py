"""Adds fields from an HTTP service, asked from Spark's Python workers."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as url_quote

import httpx2
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import (
    ArrowTransform,
    RecordError,
    RetriableError,
    Schema,
    Type,
    UnfitRecordError,
)
from headrace.sdk.arrow import to_arrow
from headrace.sdk.sparktypes import parse_ddl
from headrace.sdk.sqltext import FieldPath
from headrace_plugins.transforms.lookup_fields import LookupPart, widened
from headrace_plugins.transforms.lookup_pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk import TransformContext

_NAME = re.compile(r"\{([^{}]+)\}")
_BACKOFF_SECONDS = 0.2
_NOT_FOUND = 404
_BUSY = 429
_SERVER = 500


class ServiceLookup(LookupPart, ArrowTransform):
    """Asks a service once for each different URL of a batch."""

    _pace: Pace | None = None

    @override
    def start(self, context: TransformContext) -> None:
        super().start(context)
        rate = self.config.find_float("rate.limit")
        if rate is not None:
            path = context.state / "pace"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            # Of the task, not of a worker: the executors see the same folder.
            self._pace = Pace(rate, str(path))

    @override
    def output(self, value: Schema) -> Schema:
        after = widened(value, self.config)
        for name in _NAME.findall(self.config.get_str("url")):
            schema: Schema | None = value
            for step in FieldPath.parse(name, "V2").steps:
                field = schema.field(step) if schema and schema.type is Type.STRUCT else None
                schema = field.schema if field else None
            if schema is None:
                raise UnfitRecordError(message=f"Field does not exist: {name}")
        return after

    @override
    def transform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        url, value = self.config.get_str("url"), rows.column("value")
        names = _NAME.findall(url)
        fields = {name: _at(value, name).to_pylist() for name in names}
        valid = value.is_valid().to_pylist()
        urls = [
            _filled(url, {name: fields[name][at] for name in names}) if valid[at] else None
            for at in range(rows.num_rows)
        ]
        answers = self._service().answers({url for url in urls if url is not None})
        for found in answers.values():
            if isinstance(found, Refused):
                raise RecordError(problem=found.problem)
        missing = [u is None or answers[u] is None for u in urls]
        how = self.config.get_str("missing")
        if how == "reject" and any(m and v for m, v in zip(missing, valid, strict=True)):
            raise RecordError(problem="The service knows nothing of it (404).")
        after = self._added(rows, [answers[u] if u is not None else None for u in urls], valid)
        if how != "drop":
            return after
        keep = [not (m and v) for m, v in zip(missing, valid, strict=True)]
        return after.filter(pa.array(keep, pa.bool_()))

    def _added(
        self, rows: pa.RecordBatch, found: list[Any], valid: list[bool]
    ) -> pa.RecordBatch:
        value = rows.column("value")
        schema = parse_ddl(self.config.get_str("fields"), field="fields")
        prefix = self.config.get_str("prefix")
        columns = {f.name: value.field(f.name) for f in value.type}
        for field in to_arrow(schema):
            texts = [(answer or {}).get(field.name) for answer in found]
            columns[prefix + field.name] = _typed(texts, field.type)
        mask = pa.array([not there for there in valid], pa.bool_())
        made = pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=mask)
        return pa.RecordBatch.from_pydict({"value": made, "row": rows.column("row")})

    def _service(self) -> Service:
        config = self.config
        secret = config.find_password("authorization")
        return _service(
            Terms(
                authorization=secret.value if secret is not None else None,
                timeout_s=config.get_int("timeout.ms") / 1000,
                retries=config.get_int("retries"),
                pace=self._pace,
                parallel=config.get_int("parallel"),
                cache=config.get_int("cache.size"),
                refresh_s=config.get_int("refresh.ms") / 1000,
            )
        )


@dataclass(frozen=True, slots=True)
class Terms:
    """How a service may be asked."""

    authorization: str | None
    timeout_s: float
    retries: int
    pace: Pace | None
    parallel: int
    cache: int
    refresh_s: float


@dataclass(frozen=True, slots=True)
class Refused:
    """What a service said no to, for good."""

    problem: str


class Service:
    """A service as one worker process knows it: a client and the answers so far."""

    def __init__(self, terms: Terms) -> None:
        """Connect when the first question comes."""
        self._terms = terms
        headers = {"Authorization": terms.authorization} if terms.authorization else {}
        self._client = httpx2.Client(
            timeout=terms.timeout_s, headers=headers, follow_redirects=True
        )
        self._pool = ThreadPoolExecutor(terms.parallel)
        self._known: OrderedDict[str, tuple[float, Any]] = OrderedDict()

    def answers(self, urls: Iterable[str]) -> dict[str, Any]:
        """Return the JSON object, None for 404, or Refused, of each URL.

        Raises RetriableError when the service gives no answer for now.
        """
        found: dict[str, Any] = {}
        unknown = []
        for url in urls:
            at, answer = self._known.get(url, (float("-inf"), None))
            if time.monotonic() - at < self._terms.refresh_s:
                found[url] = answer
            else:
                unknown.append(url)
        for url, answer in zip(unknown, self._pool.map(self._ask, unknown), strict=True):
            found[url] = answer
            self._known[url] = time.monotonic(), answer
            self._known.move_to_end(url)
        while len(self._known) > self._terms.cache:
            self._known.popitem(last=False)
        return found

    def _ask(self, url: str) -> Any:
        problem = ""
        for attempt in range(self._terms.retries + 1):
            if attempt:
                time.sleep(_BACKOFF_SECONDS * 2 ** (attempt - 1))
            if self._terms.pace is not None:
                self._terms.pace.wait()
            try:
                answer = self._client.get(url)
            except httpx2.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if answer.status_code != _BUSY and answer.status_code < _SERVER:
                return _read(answer)
            problem = f"status {answer.status_code}"
        raise RetriableError(problem=f"The service of a lookup does not answer: {problem}.")


@lru_cache(maxsize=16)
def _service(terms: Terms) -> Service:
    return Service(terms)


def _read(answer: httpx2.Response) -> Any:
    if answer.status_code == _NOT_FOUND:
        return None
    if not answer.is_success:
        return Refused(f"The service of a lookup answered with status {answer.status_code}.")
    try:
        found = answer.json()
    except ValueError:
        return Refused("The service of a lookup answered with what is no JSON.")
    if not isinstance(found, dict):
        return Refused("The service of a lookup answered with JSON that is no object.")
    return found


def _filled(url: str, fields: dict[str, Any]) -> str | None:
    """Return the URL to ask; None when a field is null, which nothing can be found for."""
    if any(value is None for value in fields.values()):
        return None
    return _NAME.sub(lambda name: url_quote(str(fields[name.group(1)]), safe=""), url)


def _at(value: pa.StructArray, name: str) -> pa.Array:
    """Return a field at any depth; null where something around it is."""
    return pc.struct_field(value, list(FieldPath.parse(name, "V2").steps))


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values as a type; null for those that do not fit it."""
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
