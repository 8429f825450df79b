"""A plugin's work that may hang, on a separate thread."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

from headrace.sdk import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

T = TypeVar("T")


class PluginTimeoutError(HeadraceError):
    """A connector did not start, plan its tasks or check its configuration in time."""

    code = "plugin.timeout"

    def __init__(self, limit: timedelta, *, field: str | None = None) -> None:
        problem = f"The connector did not respond within {limit.total_seconds():g} s."
        fix = (
            "Check whether the system that it uses can be reached, then restart it; raise "
            "HEADRACE_CONNECTOR_TIMEOUT if it needs longer."
        )
        super().__init__(problem, fix=fix, field=field)


def aside(name: str, work: Callable[[], T]) -> Future[T]:
    """Start work on a thread of that name; the caller may stop waiting for it.

    What it logs has the labels of its starter. The thread of work that does not end is left
    behind; it keeps no process from ending, as one of a pool would.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001 - raised where the answer is looked at
            answer.set_exception(error)
        else:
            answer.set_result(found)

    context = copy_context()
    threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()
    return answer


def has_ended(work: Future[T], by: float | None = None) -> bool:
    """Wait for the end of work of ``aside``; return whether it came.

    ``by`` is until when, in seconds of the monotonic clock; None for ever.
    """
    wait([work], None if by is None else max(0.0, by - time.monotonic()))
    return work.done()


def within(limit: timedelta, name: str, work: Callable[[], T]) -> T:
    """Return what work gives; leave it behind when it takes longer than ``limit``.

    Raises PluginTimeoutError.
    """
    answer = aside(name, work)
    if not has_ended(answer, time.monotonic() + limit.total_seconds()):
        raise PluginTimeoutError(limit)
    return answer.result()
