"""What a server of MySQL that is not to be trusted gets of a worker."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from headrace.sdk import ConfigError
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.database import DatabaseError
from headrace_plugins.databases.mysql import Mysql

_GREETING = (
    b"\x0a8.0.40\0\x01\0\0\0" + b"a" * 8 + b"\0" + struct.pack("<HBHH", 0xA208, 45, 2, 0x0008)
) + (b"\x15" + bytes(10) + b"b" * 12 + b"\0mysql_native_password\0")
"""Of a server that has no TLS."""
_OK = b"\0\0\0\2\0\0\0"


@contextmanager
def serving(*answers: bytes) -> Iterator[tuple[Mysql, Callable[[], bytes]]]:
    """Give each packet of a client the next answer; return all that it sends."""
    sent = bytearray()

    def serve() -> None:
        line, _ = door.accept()
        with line, suppress(ConnectionError, IndexError):  # the client may have gone
            line.sendall(struct.pack("<I", len(_GREETING)) + _GREETING)
            for answer in answers:
                packet = line.recv(65536)
                sent.extend(packet)
                line.sendall(struct.pack("<I", len(answer) | packet[3] + 1 << 24) + answer)
            while more := line.recv(65536):
                sent.extend(more)

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()

        def received() -> bytes:
            thread.join(10)
            return bytes(sent)

        url = f"mysql://u@127.0.0.1:{door.getsockname()[1]}/d"
        yield Mysql(address_of(url, password="hunter2")), received  # noqa: S106


@pytest.mark.parametrize("after", [2, 3, 4])
def test_a_server_gets_no_file_unasked(after: int) -> None:
    with serving(_OK, *[_OK] * after, b"\xfb/etc/passwd") as (mysql, received):
        with pytest.raises(DatabaseError, match="requests a local file"):
            mysql.session()
        assert b"root:" not in received()


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_no_password_is_sent_as_it_is_without_tls(plugin: bytes) -> None:
    with serving(b"\xfe" + plugin + b"\0\2Password: ", _OK) as (mysql, received):
        with pytest.raises(ConfigError, match="without TLS"):
            mysql.session()
        assert b"hunter2" not in received()
