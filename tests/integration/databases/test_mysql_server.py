"""What connectors say of a MariaDB server that refuses them, is away or is set up badly."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.databases.mysql_tables import (
    read,
    run,
)
from tests.mariadb_server import MariadbServer
from tests.mysql_server import Mysql8Server

from headrace.sdk import ConfigError, HeadraceError, RetriableError
from headrace.sdk.connector import Verdict
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.mysql import Mysql


@pytest.fixture
def url(mariadb: MariadbServer) -> Iterator[str]:
    with mariadb.database() as url:
        yield url


@pytest.fixture
def database(url: str) -> Mysql:
    return Mysql(address_of(url))


def test_errors_of_connections_say_what_to_do_and_show_no_secret(
    database: Mysql, url: str, mariadb: MariadbServer
) -> None:
    port, name = mariadb.port, address_of(url).database
    mariadb.execute("CREATE USER someone@'127.0.0.1' IDENTIFIED BY 'right'")
    cases: list[tuple[str, str, type[HeadraceError], str, str]] = [
        (f"mysql://127.0.0.1:{port}/{name}", "wrong", ConfigError, "Access denied", "GRANT"),
        (
            f"mysql://127.0.0.1:{port}/{name}",
            "right",
            ConfigError,
            "Access denied",
            "GRANT SELECT",
        ),
        (f"mysql://127.0.0.1:1/{name}", "right", RetriableError, "refused", ""),
        (
            f"mysql://127.0.0.1:{port}/{name}?ssl-mode=REQUIRED",
            "right",
            ConfigError,
            "SSL",
            "ssl",
        ),
        (
            f"mysql://127.0.0.1:{port}/{name}?useSSL=true",
            "right",
            ConfigError,
            "useSSL",
            "sslMode",
        ),
        (f"mysql://127.0.0.1:{port}/{name}?ssl_ca=/no", "right", ConfigError, "No such", "PEM"),
    ]
    try:
        for url_, password, kind, problem, fix in cases:
            with pytest.raises(kind) as caught:
                Mysql(address_of(url_, "someone", password)).session()
            assert type(caught.value) is kind
            assert problem in caught.value.problem
            assert fix in caught.value.fix
            assert password not in f"{caught.value!s}{caught.value!r}"
    finally:
        mariadb.execute("DROP USER someone@'127.0.0.1'")
    with pytest.raises(ConfigError, match="Unknown database") as missing:
        Mysql(address_of(mariadb.url("nowhere"))).session()
    assert missing.value.fix == "CREATE DATABASE `nowhere`;"


@pytest.fixture
def certificate() -> Iterator[Path]:
    """A folder with a certificate of ``localhost`` that signs itself, and its key."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-tls-"))
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "own.pem")]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", *options, *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    for path in (folder, *folder.iterdir()):  # for the server, which has a user of its own
        path.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_rows_travel_by_tls_as_the_url_says(certificate: Path) -> None:
    own, key = (str(certificate / name) for name in ("own.pem", "key.pem"))
    with (
        MariadbServer.running(ssl_cert=own, ssl_key=key) as server,
        server.database() as url,
    ):
        run(url, "CREATE TABLE t (id INT)", "INSERT INTO t SELECT seq FROM seq_1_to_300000")
        name = address_of(url).database
        cipher = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
        for host, options, is_safe in [
            ("127.0.0.1", "", True),
            ("127.0.0.1", "?ssl-mode=DISABLED", False),
            ("127.0.0.1", "?sslMode=REQUIRED", True),
            ("127.0.0.1", f"?ssl_ca={own}", True),
            ("localhost", f"?ssl_ca={own}&sslMode=verify-full", True),
        ]:
            database = Mysql(address_of(f"mysql://root@{host}:{server.port}/{name}{options}"))
            with database.session() as session:
                assert bool(session.rows(cipher)[0][1]) is is_safe
            found, _ = read(database, "t")
            assert len(found) == 300_000
        for host, options in [
            ("localhost", "?sslMode=verify-ca"),
            ("127.0.0.1", f"?ssl_ca={own}&sslMode=verify-identity"),
        ]:
            address = address_of(f"mysql://root@{host}:{server.port}/{name}{options}")
            with pytest.raises(ConfigError, match="CERTIFICATE_VERIFY_FAILED"):
                Mysql(address).session()


def test_a_server_without_tls_is_reached_unless_tls_is_required() -> None:
    with Mysql8Server.running(ssl="0") as server, server.database() as url:
        for options in ("", "?sslMode=preferred", "?sslMode=disabled"):
            with Mysql(address_of(f"{url}{options}")).session() as session:
                assert session.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1] == ""
        with pytest.raises(ConfigError, match="SSL is required"):
            Mysql(address_of(f"{url}?sslMode=required")).session()


def test_a_right_that_is_missing_is_named(
    database: Mysql, url: str, mariadb: MariadbServer
) -> None:
    name = address_of(url).database
    run(url, "CREATE TABLE t (a INT)")
    mariadb.execute("CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'secret'")
    mariadb.execute(f"GRANT SELECT ON {name}.* TO reader@'127.0.0.1'")
    try:
        reader = Mysql(address_of(url.replace("root@", ""), "reader", "secret"))
        with (
            reader.session() as session,
            pytest.raises(ConfigError, match="INSERT command") as caught,
        ):
            session.execute("INSERT INTO t VALUES (1)")
        assert "GRANT" in caught.value.fix
    finally:
        mariadb.execute("DROP USER reader@'127.0.0.1'")


def test_a_server_that_is_read_only_or_away_is_tried_again(
    database: Mysql, url: str, mariadb: MariadbServer
) -> None:
    run(url, "CREATE TABLE t (v INT)")
    with database.session() as session:
        with mariadb.read_only(), pytest.raises(RetriableError, match="read-only"):
            session.execute("INSERT INTO t VALUES (1)")
        session.rollback()
        with mariadb.killed():
            with pytest.raises(RetriableError):
                session.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(RetriableError):
                database.session()


def test_a_lock_is_not_waited_for_for_ever(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE t (a INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with database.merging_session(database.named("t")) as session:
        assert session.rows(
            "SELECT @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@wait_timeout"
        ) == [(60, 60, 3600)]
        session.execute("SET SESSION innodb_lock_wait_timeout = 1")
        with database.session() as other:
            other.execute("UPDATE t SET a = 2")
            with pytest.raises(RetriableError, match="Lock wait timeout"):
                session.execute("UPDATE t SET a = 3")


def test_a_server_is_examined(database: Mysql, url: str, mariadb: MariadbServer) -> None:
    with database.session() as session:
        found = list(database.examine(session))
    assert {each.verdict for each in found} == {Verdict.OK}
    name = address_of(url).database
    run(url, f"ALTER DATABASE {name} CHARACTER SET latin1")
    mariadb.execute("SET GLOBAL local_infile = OFF")
    mariadb.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        with mariadb.read_only(), database.session() as session:
            found = list(database.examine(session))
            fixes = [each.fix for each in found if each.verdict is Verdict.WARNING]
    finally:
        mariadb.execute("SET GLOBAL local_infile = ON")
        mariadb.execute("SET GLOBAL max_allowed_packet = 67108864")
    assert fixes == [
        f"ALTER DATABASE `{name}` CHARACTER SET utf8mb4;",
        "SET GLOBAL local_infile = 1;",
        "SET GLOBAL max_allowed_packet = 67108864;",
        "Write to its primary, or SET GLOBAL read_only = OFF;",
    ]
    run(url, fixes[0])
