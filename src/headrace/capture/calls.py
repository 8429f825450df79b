"""Questions that a host asks its worker, and waits for the answers of."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from headrace.capture.channel import error_from_json

if TYPE_CHECKING:
    from headrace.capture.channel import Channel, Message


class Calls:
    """The open questions of one host. Any thread may ask."""

    def __init__(self, channel: Channel) -> None:
        """Ask over ``channel``."""
        self._channel = channel
        self._numbers = itertools.count()
        self._open: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()

    def ask(self, capture: str, what: str, **told: Any) -> Any:
        """Ask the worker and return its answer, or raise the error that it gave."""
        number = next(self._numbers)
        answer: Future[Any] = Future()
        with self._lock:
            self._open[number] = answer
        self._channel.send(
            {"type": "call", "capture": capture, "call": number, "what": what, **told}
        )
        return answer.result()

    def answer(self, message: Message) -> None:
        """Take an answer from the worker."""
        with self._lock:
            waiting = self._open.pop(message["call"])
        if "error" in message:
            waiting.set_exception(error_from_json(message["error"]))
        else:
            waiting.set_result(message["value"])
