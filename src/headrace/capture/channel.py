"""The channel between a worker and a plugin host: JSON objects, one per line, and replies."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from headrace.sdk import errors
from headrace.sdk.errors import HeadraceError, SourceError, error_class

Message = dict[str, Any]
"""A message with its ``type``, and the ``capture`` that it is about."""


class Channel:
    """One end of the channel. Any thread may send; one thread receives."""

    def __init__(self, end: socket.socket) -> None:
        """Use a connected stream socket, which is closed with the channel."""
        self._socket = end
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """Send one message. Raises OSError if the other end has closed."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            self._socket.sendall(line)

    def messages(self) -> Iterator[Message]:
        """Yield received messages until the other end closes or dies."""
        with self._socket.makefile("rb") as lines:
            try:
                for line in lines:
                    yield json.loads(line)
            except (OSError, ValueError):
                return  # the other end died in the middle of a line

    def hang_up(self) -> None:
        """End both directions, so that a blocked ``messages`` returns, and close."""
        with contextlib.suppress(OSError):  # the other end was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def error_to_json(error: BaseException) -> Message:
    """Return an error as JSON; any error but a HeadraceError becomes a SourceError."""
    if isinstance(error, HeadraceError):
        return error.to_json()
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return SourceError(f"The plugin failed with {text}").to_json()


def refusal(message: Message, error: Exception) -> Message:
    """Return the answer to a call that raises ``error`` in the host."""
    return {"type": "answer", "call": message["call"], "error": error_to_json(error)}


def error_from_json(message: Message) -> HeadraceError:
    """Return the error of ``error_to_json``, with the same class.

    An error whose class is unknown here, as only the worker defines it, becomes a SourceError
    with its code.
    """
    known = error_class(message["code"])
    kind = known or SourceError
    error = kind.__new__(kind, message["problem"])
    if known is None:
        error.__dict__["code"] = message["code"]
    facts = {key: fact for key, fact in message.items() if key not in {"code", "category"}}
    seconds = facts.pop("after_seconds", None)
    error.__dict__.update(facts)
    if isinstance(error, errors.RetriableError):
        error.after = None if seconds is None else timedelta(seconds=seconds)
    if isinstance(error, errors.ConfigErrors):
        error.errors = tuple(
            found
            for each in message.get("errors", ())
            if isinstance(found := error_from_json(each), errors.ConfigError)
        )
    return error


class Calls:
    """The pending calls of one host. Thread-safe."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._open: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()

    def ask(self, capture: str, what: str, **facts: Any) -> Any:
        """Call the worker and return its answer, or raise its error."""
        number = next(self._numbers)
        answer: Future[Any] = Future()
        with self._lock:
            self._open[number] = answer
        self._channel.send(
            {"type": "call", "capture": capture, "call": number, "what": what, **facts}
        )
        return answer.result()

    def answer(self, message: Message) -> None:
        with self._lock:
            waiting = self._open.pop(message["call"])
        if "error" in message:
            waiting.set_exception(error_from_json(message["error"]))
        else:
            waiting.set_result(message["value"])
