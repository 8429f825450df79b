"""Work that Python workers of Spark do, as part of a commit."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.sdk.durability import Durability, durability, set_durability
from headrace.sdk.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_in_workers(spark: SparkSession, works: Sequence[Callable[[], object]]) -> None:
    """Call each in a worker, side by side, and return when all are done.

    Errors of Headrace are raised here, the first one. Each may be called more than once, as
    Spark repeats failed tasks: it must change nothing the second time.
    """
    if not works:
        return
    context = spark.sparkContext
    run = partial(_run, durability())
    for failure in context.parallelize(works, len(works)).mapPartitions(run).collect():
        if failure is not None:
            # Made a moment ago by this very application.
            raise pickle.loads(failure)  # noqa: S301


def _run(mode: Durability, works: Iterable[Callable[[], object]]) -> Iterator[bytes | None]:
    set_durability(mode)
    for work in works:
        try:
            work()
        except HeadraceError as error:
            yield pickle.dumps(error)
        else:
            yield None
