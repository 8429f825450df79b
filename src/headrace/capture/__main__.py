"""Runs a plugin host: ``python -m headrace.capture FD``, started by the worker."""

from __future__ import annotations

import signal
import socket
import sys

from headrace.capture.channel import Channel
from headrace.capture.server import Host


def main() -> None:
    """Serve the worker at the other end of the inherited socket."""
    # Ctrl-C reaches the whole group; the worker stops its captures in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Host(Channel(socket.socket(fileno=int(sys.argv[1])))).serve()


if __name__ == "__main__":
    main()
