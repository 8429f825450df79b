"""MySQL servers of our own, of two versions, beside that of MariaDB.

MySQL 8.0.15, of the first with the names of columns in their log, is in a jar that `mysql.toml`
pins. The newest MySQL is in Debian's unstable release only: its packages are unpacked beside
the jars and run with the C library that they were built for. Both are fetched at first use, or
before it by ``python -m tests.mysql_server``.
"""

# ruff: noqa: S607 - programs of Debian that are on PATH

import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.mariadb_server import MariadbServer
from typing_extensions import override

from headrace.sdk.errors import SetupError
from headrace.sdk.location import Location
from headrace.settings import load_settings
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import find_java

LOCK = Path(__file__).with_name("mysql.toml")
SECONDS = 300
FIX = "Run the tests on Debian, or on a machine that has its packages."


class MysqlServer(MariadbServer):
    """A server of MySQL; root needs no password, and may do anything."""

    system_user = "root"  # its programs lie in our own folders

    @override
    def initialize(self) -> None:
        rights = self.data.parent / "rights.sql"
        rights.write_text(
            "CREATE USER root@'127.0.0.1';\n"
            "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        command = [*self._program(), "--initialize-insecure", f"--init-file={rights}"]
        command.append(f"--datadir={self.data}")
        log = self.data.parent / "log"
        with log.open("wb") as out:
            found = subprocess.run(
                command,
                env=self.environment,
                stdout=out,
                stderr=out,
                timeout=SECONDS,
                check=False,
            )
        assert found.returncode == 0, log.read_text()

    @override
    def _command(self) -> list[str | Path]:
        settings = {
            **self._settings(),
            "innodb_doublewrite": "off",
            "mysqlx": "off",
            "secure_file_priv": "",
            # That of MariaDB, where a date may be zero.
            "sql_mode": "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
            "pid_file": str(self.data.parent / "pid"),
            **self.settings,
        }
        return [*self._program(), *(f"--{key}={value}" for key, value in settings.items())]

    def _program(self) -> list[str | Path]:
        """Return what starts the server, without options of the machine's own."""
        raise NotImplementedError

    @override
    @contextmanager
    def read_only(self) -> Iterator[None]:
        self.execute("SET GLOBAL super_read_only = ON")
        try:
            yield
        finally:
            self.execute("SET GLOBAL read_only = OFF")


class Mysql8Server(MysqlServer):
    """MySQL 8.0.15."""

    title = "MySQL-8"

    @override
    def initialize(self) -> None:
        try:
            path = _jar()
        except SetupError as error:
            pytest.skip(f"MySQL 8 cannot be had: {error}")
        with (
            zipfile.ZipFile(path) as jar,
            jar.open("mysql-Linux-amd64.tar.gz") as packed,
            tarfile.open(fileobj=packed, mode="r:gz") as files,
        ):
            # Python before 3.11.4 has no filters.
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            files.extractall(self._folder)  # noqa: S202 - filtered
        super().initialize()

    @property
    def _folder(self) -> Path:
        return self.data.parent / "server"

    @override
    def _program(self) -> list[str | Path]:
        program = self._folder / "bin" / "mysqld"
        return [program, "--no-defaults", f"--basedir={self._folder}", "--user=root"]


class NewestMysqlServer(MysqlServer):
    """The newest MySQL that Debian has."""

    title = "MySQL"

    @override
    def _program(self) -> list[str | Path]:
        root = unpacked()
        libraries = root / "usr/lib/x86_64-linux-gnu"
        share = root / "usr/share/mysql"
        return [
            *(libraries / "ld-linux-x86-64.so.2", "--library-path", libraries),
            *(root / "usr/sbin/mysqld", "--no-defaults", "--user=root"),
            *(f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"),
        ]


def _jar() -> Path:
    settings = load_settings()
    cache = JarCache(
        folder=settings.cache / "jars", java=find_java(), spark_conf=settings.spark_conf
    )
    [jar] = cache.resolve(locked_jars(lock=LOCK))
    return jar


def unpacked() -> Path:
    """Return the folder of Debian's newest MySQL and of what it needs.

    Raises SetupError: it cannot be had.
    """
    cache = Path(load_settings().cache)
    root = cache / "mysql-newest"
    if root.exists():
        return root
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SetupError(problem="There is no apt-get.", fix=FIX)
    cache.mkdir(parents=True, exist_ok=True)
    with (
        Location.of(cache / ".mysql-lock").lock(),
        tempfile.TemporaryDirectory(dir=cache) as own,
    ):
        if not root.exists():
            _unpack(Path(own))
            (Path(own) / "root").rename(root)
    return root


def _unpack(folder: Path) -> None:
    """Unpack the packages of Debian's unstable release, which `apt-get` checks the hashes of.

    Nothing is installed: with no package known as installed, all that it needs comes along.
    """
    folder.chmod(0o755)
    (folder / "sources").write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {_mirror()} sid main\n"
    )
    (folder / "status").touch()
    for each in ("lists/partial", "cache/archives/partial"):
        (folder / each).mkdir(parents=True)
    options = {
        "Dir::Etc::SourceList": folder / "sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "root",
        "APT::Architecture": "amd64",
        "Acquire::Languages": "none",
    }
    flags = [f"-o{key}={value}" for key, value in options.items()]
    install = ["install", "--download-only", "--no-install-recommends", "--yes"]
    for command in (["update"], [*install, "mysql-server-core"]):
        done = subprocess.run(
            ["apt-get", "-qq", *flags, *command],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise SetupError(problem=f"apt-get {command[0]}: {done.stderr.strip()}", fix=FIX)
    for package in (folder / "cache/archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)


def _mirror() -> str:
    """Return where the machine has Debian's packages from."""
    places = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    ).stdout
    for place in places.split():
        if place.rstrip("/").endswith("/debian"):
            return place
    raise SetupError(problem="The machine's packages are not Debian's.", fix=FIX)


if __name__ == "__main__":
    for fetch in (_jar, unpacked):
        try:
            fetch()
        except SetupError as error:
            print(f"The tests of one MySQL are skipped: {error}")  # noqa: T201
