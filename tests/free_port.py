"""Ports of this machine for servers of tests."""

import random
import socket

_PORTS = range(20_000, 32_768)
"""Below those that the kernel gives to whoever connects: so nobody takes the port of a server
between its choice and its start, nor while it is stopped."""


def free_port() -> int:
    """Return a port that nobody has."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as taken:
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
