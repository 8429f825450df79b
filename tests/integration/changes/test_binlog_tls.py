"""The binary log by TLS."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.changes.binlog_reading import (
    changes_of,
    gives_no_rows,
    pieces_until,
    place_of,
    reading,
)
from tests.integration.databases.mysql_tables import run
from tests.mariadb_server import MariadbServer


@pytest.fixture(scope="module")
def tls_server(_no_leaked_process: None) -> Iterator[MariadbServer]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-tls-"))
    folder.chmod(0o755)
    own, key = str(folder / "own.pem"), str(folder / "key.pem")
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command = ["openssl", "req", *options, "-out", own, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)
    Path(key).chmod(0o644)
    log = {"log_bin": "binlog", "server_id": "7", "binlog_format": "ROW"}
    try:
        with MariadbServer.running(ssl_cert=own, ssl_key=key, **log) as server:
            yield server
    finally:
        shutil.rmtree(folder)


def test_a_log_is_read_by_tls_while_it_comes_and_while_it_does_not(
    tls_server: MariadbServer,
) -> None:
    with tls_server.database() as url:
        place, safe = place_of(url), f"{url}?sslMode=required"
        run(url, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(99))")
        with reading(safe, place) as reader:
            assert reader._dump._session is not None
            cipher = reader._dump._session.connection._sock.cipher()
            assert cipher
            list(pieces_until(reader, place_of(url)))
            assert gives_no_rows(reader, 1.5)
            reader.idle()
            run(url, "INSERT INTO t SELECT seq, REPEAT(seq, 9) FROM seq_1_to_200000")
            reader.idle()
            found = changes_of(list(pieces_until(reader, place_of(url))))["t"]
        assert [each["after"]["id"] for each in found] == list(range(1, 200_001))
