"""Runs a plugin host: ``python -m headrace.capture FD``, started by the worker."""

from __future__ import annotations

import os
import signal
import socket
import sys

from headrace.capture.capture_thread import CaptureThread
from headrace.capture.process import Calls, CaptureSpec, Channel, Message, Voice, error_to_json
from headrace.sdk import Position
from headrace.sdk.durability import set_durability


class Host:
    """Handles the worker's messages, until the worker ends."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._calls = Calls(channel)
        self._voice = Voice(channel)
        self._captures: dict[str, CaptureThread] = {}

    def serve(self) -> None:
        """Serve; never returns.

        The process exits at once when the worker ends for any reason, whatever the plugins are
        doing: data that they have not appended is polled again.
        """
        self._voice.take_over()
        self._send({"type": "ready"})
        try:
            for message in self._channel.messages():
                self._take(message)
        finally:
            os._exit(0)

    def _take(self, message: Message) -> None:
        match message["type"]:
            case "ping":
                self._send({"type": "pong"})
            case "answer":
                self._calls.answer(message)
            case "start":
                self._start(message)
            case "stop":
                capture = self._captures.get(message["capture"])
                if capture is not None:
                    capture.ask_to_stop(discard=message["discard"])

    def _start(self, message: Message) -> None:
        name = message["capture"]
        # Remove ended captures here, as only this thread uses the list.
        self._captures = {n: c for n, c in self._captures.items() if c.is_alive()}
        try:
            spec = CaptureSpec.from_json(message["spec"])
            set_durability(spec.durability)  # one installation, one setting
            capture = CaptureThread(
                name,
                spec,
                position=Position.from_json(message["position"]),
                epoch=message["epoch"],
                calls=self._calls,
                send=self._send,
                voice=self._voice,
            )
        except Exception as error:  # noqa: BLE001 - one capture's fault must not end the others
            self._send({"type": "failed", "capture": name, "error": error_to_json(error)})
            return
        self._captures[name] = capture
        capture.start()

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            os._exit(0)  # the worker has ended


def main() -> None:
    """Serve the worker at the other end of the inherited socket."""
    # Ctrl-C reaches the whole group; the worker stops its captures in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Host(Channel(socket.socket(fileno=int(sys.argv[1])))).serve()


if __name__ == "__main__":
    main()
