"""What a host's plugins log or print, told to the worker without secrets."""

from __future__ import annotations

import io
import logging
import sys
import threading
from typing import TYPE_CHECKING

import structlog
from typing_extensions import override

from headrace.sdk.config import Password

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    from headrace.capture.channel import Channel

_HIDDEN = str(Password(""))
_SHORTEST_SECRET = 4
"""Shorter texts are everywhere; hiding them would tell more than it hides."""


class Voice:
    """Tells the worker, for each line, which capture said it.

    A line belongs to the capture whose thread says it; threads that a plugin starts
    itself speak for no capture.
    """

    def __init__(self, channel: Channel) -> None:
        """Speak over ``channel``."""
        self._channel = channel
        self._local = threading.local()
        self._secrets: frozenset[str] = frozenset()

    def speak_for(self, capture: str) -> None:
        """Say that this thread belongs to a capture."""
        self._local.capture = capture

    def hide(self, secret: str) -> None:
        """Never let this text through."""
        if len(secret) >= _SHORTEST_SECRET:
            self._secrets |= {secret}

    def clean(self, text: str) -> str:
        """Return the text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    def say(self, level: str, logger: str, text: str) -> None:
        """Send one line."""
        capture = getattr(self._local, "capture", None)
        line = {"level": level, "logger": logger, "text": self.clean(text)}
        try:
            self._channel.send({"type": "log", "capture": capture, **line})
        except OSError:
            return  # the worker is gone, and this process is about to be

    def take_over(self) -> None:
        """Send what is logged and printed in this process from now on."""
        logging.basicConfig(handlers=[_Handler(self)], level=logging.INFO, force=True)
        # By default it prints, which tells the level as a part of the text.
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
        self.setFormatter(logging.Formatter())  # the text, and the traceback if there is one

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
