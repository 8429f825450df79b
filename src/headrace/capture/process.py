"""A host's process: its start message, channel, handle and the forwarding of its log."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import IO, Any, cast

import structlog
from typing_extensions import override

from headrace.model import TopicRetention
from headrace.sdk import errors
from headrace.sdk.config import Password
from headrace.sdk.durability import Durability
from headrace.sdk.errors import HeadraceError, SourceError, error_class
from headrace.sdk.schema_evolution import EvolutionPolicy

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a capture collects polled records into batches.

    Args:
        linger_ms: The minimum time between appends while data keeps arriving; longer if many
            captures are busy, see ``Tempo``. Data after a longer pause is appended at once.
            50 costs about a quarter of a core for a steady trickle, and sinks do not poll
            more often anyway.
        max_rows: The number of rows that triggers an append.
        max_bytes: The number of bytes that triggers an append, if known (Arrow batches).
        poll_interval_ms: The maximum wait between two empty polls.
    """

    linger_ms: int = 50
    max_rows: int = 100_000
    max_bytes: int = 64 * 1024 * 1024
    poll_interval_ms: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSpec:
    """The specification of one capture.

    It is sent to the host over a pipe and must never be shown: the configuration contains
    secrets in plain text.

    Args:
        config: The task's configuration, with resolved secrets.
        application: The task's permanent name in marks.
        topic: The connector's own topic, for records that do not name another.
        stream: An alias of ``topic`` in records. If set, a chain reads that topic, and records
            may not name any other; empty allows any topic.
        dead_letters: The dead-letter topic, if any.
        tolerant: Whether records may be rejected without a dead-letter topic.
        evolution: The policy for changes of the records' schema.
        once: Whether the capture ends after two consecutive empty polls.
        retention: The retention of topics that it creates; None for the default.
        allowed_paths: The paths at or below which it may read files; None for any.
    """

    connector: str
    task: int
    class_path: str
    config: Mapping[str, str] = field(repr=False)
    application: str
    topics_dir: str
    topic: str
    stream: str = ""
    dead_letters: str | None = None
    tolerant: bool = False
    context_headers: bool = False
    log_errors: bool = False
    log_messages: bool = False
    scratch: str
    pace: Pace = Pace()
    evolution: EvolutionPolicy = field(default_factory=EvolutionPolicy)
    once: bool = False
    durability: Durability = Durability.FSYNC
    retention: TopicRetention | None = None
    allowed_paths: tuple[str, ...] | None = None

    @property
    def tolerates(self) -> bool:
        """Return whether the task continues after a rejected record."""
        return self.tolerant or self.dead_letters is not None

    def to_json(self) -> dict[str, Any]:
        plain = {
            "config": dict(self.config),
            "evolution": self.evolution.to_json(),
            "durability": self.durability.value,
            "retention": self.retention and self.retention.to_properties(),
        }
        return {**asdict(self), **plain}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> CaptureSpec:
        retention, allowed = values["retention"], values["allowed_paths"]
        plain = {
            "pace": Pace(**values["pace"]),
            "evolution": EvolutionPolicy.from_json(values["evolution"]),
            "durability": Durability(values["durability"]),
            "retention": retention and TopicRetention.from_properties(retention),
            "allowed_paths": None if allowed is None else tuple(allowed),
        }
        return cls(**{**values, **plain})


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

    def limit_sending(self, seconds: int) -> None:
        """Make ``send`` raise BlockingIOError if the other end receives nothing for so long."""
        limit = struct.pack("@ll", seconds, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def end_sending(self) -> None:
        """End this direction: the other end receives no more messages."""
        with contextlib.suppress(OSError):  # the other end has closed
            self._socket.shutdown(socket.SHUT_WR)

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


class HostProcess:
    """One running host. Thread-safe.

    Args:
        python: The interpreter of the plugin environment.
        variables: The process's environment variables; None for this process's own.
        receive: Called with this handle and each message, in one thread of the handle, and in
            another with each line that the process writes outside Python's streams. It must
            not raise.
        gone: Called once, in the first of these threads, when the process has ended for any
            reason.
    """

    def __init__(
        self,
        python: str = sys.executable,
        *,
        variables: Mapping[str, str] | None = None,
        receive: Callable[[HostProcess, Message], None],
        gone: Callable[[HostProcess], None],
    ) -> None:
        self.ready = False
        """Whether the process has started to serve."""
        self.last_words = ""
        """The last line that the process wrote outside Python's streams."""
        self._receive = receive
        self._gone = gone
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            self._process = _started(python, theirs, variables)
            undo.pop_all()
        self._channel = Channel(ours)
        self._asked = False
        self._answered = threading.Event()
        self._output = cast("IO[bytes]", self._process.stdout)
        self._output_thread = threading.Thread(
            target=self._log_output, name=f"host-out-{self.pid}", daemon=True
        )
        listener = threading.Thread(target=self._listen, name=f"host-{self.pid}", daemon=True)
        self._threads = [self._output_thread, listener]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message) -> None:
        """Send a message; it is lost if the process has ended, which calls ``gone``.

        A process that has started to serve and then receives nothing for some
        ``_SEND_SECONDS`` is killed.
        """
        try:
            self._channel.send(message)
        except BlockingIOError:  # half of a message may have been sent
            log.warning("plugin host does not read its messages and is killed", host=self.pid)
            self._process.kill()
        except OSError:
            pass

    def ask(self) -> None:
        """Send a ping, unless the last one is not answered: the channel must not fill up."""
        if self.ready and not self._asked:
            self._asked = True
            self._answered.clear()
            self.send({"type": "ping"})

    def answers(self, seconds: float) -> bool:
        """Return whether the process has answered the ping, if any. Blocks."""
        return not self._asked or self._answered.wait(max(0.0, seconds))

    def kill(self) -> None:
        self._process.kill()

    def close(self, grace: timedelta) -> None:
        """End the process, and wait for it and the handle's threads."""
        self._channel.end_sending()
        try:
            self._process.wait(grace.total_seconds())
        except subprocess.TimeoutExpired:
            self._process.kill()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _listen(self) -> None:
        for message in self._channel.messages():
            if not self.ready:
                self._channel.limit_sending(_SEND_SECONDS)
                self.ready = True
            if message["type"] == "pong":
                self._answered.set()  # before the next ping may clear it
                self._asked = False
            elif message["type"] != "ready":
                self._receive(self, message)
        self._channel.hang_up()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()  # it closed the channel and is still running
            self._process.wait()
        # The last line says why it ended; a child process may keep the pipe open.
        self._output_thread.join(_LAST_WORDS_SECONDS)
        self._gone(self)

    def _log_output(self) -> None:
        """Log what the process writes outside Python's streams, such as a crash message."""
        with self._output as output:
            for line in output:
                text = self.last_words = line.decode(errors="replace").rstrip()
                line_facts = {"level": "warning", "logger": "output", "text": text}
                self._receive(self, {"type": "log", "capture": None, **line_facts})


def _started(
    python: str, line: socket.socket, variables: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start a host with the other end of the channel, which is closed here."""
    with line:
        return subprocess.Popen(  # noqa: S603 - the interpreter is the operator's choice
            [python, "-P", "-m", "headrace.capture", str(line.fileno())],
            pass_fds=[line.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=None if variables is None else dict(variables),
        )


_LAST_WORDS_SECONDS = 1.0
_SEND_SECONDS = 10
"""How long a host may receive nothing while its channel is full."""
_HIDDEN = str(Password(""))
_SHORTEST_SECRET = 4
"""Shorter texts occur everywhere; masking them would reveal them."""


class Voice:
    """Sends log lines to the worker, with the name of the capture.

    A line belongs to the capture whose thread writes it; threads that a plugin starts belong to
    no capture.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._local = threading.local()
        self._secrets: frozenset[str] = frozenset()

    def speak_for(self, capture: str) -> None:
        self._local.capture = capture

    def hide(self, secret: str) -> None:
        if len(secret) >= _SHORTEST_SECRET:
            self._secrets |= {secret}

    def clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    def say(self, level: str, logger: str, text: str) -> None:
        capture = getattr(self._local, "capture", None)
        line = {"level": level, "logger": logger, "text": self.clean(text)}
        try:
            self._channel.send({"type": "log", "capture": capture, **line})
        except OSError:
            return  # the worker has ended, and this process is about to end

    def take_over(self) -> None:
        """Redirect this process's logs and output to the worker."""
        logging.basicConfig(handlers=[_Handler(self)], level=logging.INFO, force=True)
        # By default structlog prints, with the level as part of the text.
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.contextvars.merge_contextvars,
                structlog.processors.format_exc_info,
                _text,
            ],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
        )
        sys.stdout = _Lines(self, "stdout", "info")
        sys.stderr = _Lines(self, "stderr", "warning")


def _text(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    text, exception = event.pop("event", ""), event.pop("exception", None)
    details = ", ".join(f"{key}={value}" for key, value in event.items())
    line = f"{text} ({details})" if details else str(text)
    return f"{line}\n{exception}" if exception else line


class _Handler(logging.Handler):
    def __init__(self, voice: Voice) -> None:
        super().__init__()
        self._voice = voice
        self.setFormatter(logging.Formatter())  # the message, and the traceback if any

    @override
    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        self._voice.say(level, record.name, self.format(record))


class _Lines(io.TextIOBase):
    """A text stream whose lines are logged."""

    def __init__(self, voice: Voice, name: str, level: str) -> None:
        self._voice = voice
        self._name = name
        self._level = level
        self._local = threading.local()

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._local, "rest", "") + text).split("\n")
        self._local.rest = rest
        for line in lines:
            if line.strip():
                self._voice.say(self._level, self._name, line)
        return len(text)
