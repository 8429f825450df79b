"""A line to a server that can fall silent: what is sent then arrives nowhere."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class BlackHole:
    """Forwards connections to a port of this machine, until it is told to swallow all."""

    def __init__(self, port: int) -> None:
        self.silent = False
        self.answer: Callable[[bytes], bytes] = bytes
        """What becomes of what the server sends."""
        self._to = port
        self._ended = False
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while not self._ended:
            if not select.select([self._door], [], [], 0.05)[0]:
                continue
            near, _ = self._door.accept()
            line = threading.Thread(target=self._line, args=(near,), daemon=True)
            self._threads.append(line)
            line.start()

    def _line(self, near: socket.socket) -> None:
        far = socket.create_connection(("127.0.0.1", self._to))
        with near, far, suppress(ConnectionError):
            while not self._ended:
                for ready in select.select([near, far], [], [], 0.02)[0]:
                    data = b"" if self.silent else ready.recv(65536)
                    if self.silent:
                        self._threads[0].join(0.02)
                        continue
                    if not data:
                        return
                    if ready is near:
                        far.sendall(data)
                    else:
                        near.sendall(self.answer(data))

    def close(self) -> None:
        self._ended = True
        for each in self._threads:
            each.join(5)
        self._door.close()


@contextmanager
def black_hole(port: int) -> Iterator[BlackHole]:
    made = BlackHole(port)
    try:
        yield made
    finally:
        made.close()
