"""Clients that keep a server waiting are sent away, and do not keep others out."""

import socket
import time
from collections.abc import Iterator

import httpx2
import pytest

from headrace.control import Connectors
from headrace.rest import Listener, Serving, connect_app
from headrace.rest.listener import ConnectionLimits

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def address(connectors: Connectors) -> Iterator[tuple[str, int]]:
    limits = ConnectionLimits(head_seconds=1, total=30, of_address=20)
    listener = Listener(port=0, connections=limits, body_seconds=0.5)
    with Serving(connect_app(connectors, listener), listener) as serving:
        serving.start()
        url = httpx2.URL(serving.url)
        yield url.host, url.port or 80


def ended(connection: socket.socket, seconds: float = 20) -> bytes:
    """Return what a connection gives until the server ends it; fails if it does not."""
    connection.settimeout(seconds)
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("sent", [b"", b"GET /connectors HTTP/1.1\r\nHost: local"])
def test_a_request_whose_head_does_not_arrive_is_ended(
    address: tuple[str, int], sent: bytes
) -> None:
    slow = [socket.create_connection(address) for _ in range(10)]
    for each in slow:
        each.sendall(sent)
    for each in slow:
        assert ended(each) == b""
        each.close()


def test_bytes_now_and_then_do_not_keep_a_connection_open(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as slow:
        begun = time.monotonic()
        with pytest.raises(OSError, match=r".*"):  # noqa: PT012 - whichever of them notices
            while time.monotonic() - begun < 20:
                slow.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - begun < 20


def test_a_body_that_does_not_arrive_is_answered_and_ended(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as slow:
        head = b"POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
        slow.sendall(head + b"Content-Type: application/json\r\n\r\n{")
        answer = ended(slow)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"error_code":408' in answer


def test_an_address_has_its_share_of_connections_and_gets_it_back(
    address: tuple[str, int],
) -> None:
    slow = [socket.create_connection(address) for _ in range(25)]
    assert ended(slow[-1], 5) == b""  # one too many
    for each in slow:
        ended(each)
        each.close()
    url = f"http://{address[0]}:{address[1]}/connectors"
    assert httpx2.get(url, timeout=20).status_code == 200


def test_a_client_that_asks_again_on_its_connection_is_served(address: tuple[str, int]) -> None:
    with httpx2.Client(timeout=20) as client:
        for _ in range(3):
            url = f"http://{address[0]}:{address[1]}/connectors"
            assert client.get(url).status_code == 200
            time.sleep(1.3)  # longer than a head may take
