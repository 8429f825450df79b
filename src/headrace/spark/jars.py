"""The jars that Spark needs in addition to its own: locked, fetched once, verified.

Spark's own Ivy fetches them, so Maven is not needed, and the user's mirrors and proxies
(`spark.jars.ivySettings`, `spark.jars.repositories`, `spark.driver.extraJavaOptions`) apply.
"""

import hashlib
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from headrace.sdk.errors import SetupError
from headrace.sdk.location import Location
from headrace.spark.jvm import Java, close_gateway, open_gateway, spark_environment

LOCK_FILE = Path(__file__).with_name("jars.toml")
PASSED_TO_IVY = (
    "spark.jars.ivySettings",
    "spark.jars.repositories",
    "spark.driver.extraJavaOptions",
)


@dataclass(frozen=True, kw_only=True)
class Jar:
    """One jar: the feature that needs it, its Maven coordinates, its hash.

    A jar without a hash is pinned to the hash of its first download into the cache.
    """

    feature: str
    coordinates: str
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        """The name in the cache: the whole coordinates, so it is unique."""
        return self.coordinates.replace(":", "_") + ".jar"


def locked_jars(lock: Path = LOCK_FILE) -> list[Jar]:
    """Return the jars of a lock file, in its order."""
    return [Jar(**entry) for entry in tomllib.loads(lock.read_text())["jar"]]


@dataclass(frozen=True, kw_only=True)
class JarCache:
    """A folder of jars that were verified against their hashes.

    Several processes may share a folder: complete jars are moved into it, by one process at a
    time.
    """

    folder: Path
    java: Java
    spark_conf: Mapping[str, str]

    @property
    def log(self) -> Path:
        """The file for Ivy's output."""
        return self.folder / "ivy.log"

    def resolve(
        self, jars: Collection[Jar], *, report: Callable[[str], None] = lambda _: None
    ) -> tuple[Path, ...]:
        """Return the file of each jar, in the given order, after fetching missing jars.

        Takes about a millisecond if none is missing: a file with the size and time of its last
        verification is not read again. Otherwise one JVM is started, and each jar takes about a
        second.

        Args:
            jars: The required jars.
            report: Called with a message about each fetched jar.

        Raises:
            SetupError: A jar cannot be fetched, or its hash does not match.
        """
        missing = self.missing(jars)
        if missing:
            self.folder.mkdir(parents=True, exist_ok=True)
            with Location.of(self.folder / ".lock").lock():
                # Another process may have fetched them while this one waited.
                absent = [jar for jar in missing if not self._check(jar)]
                if absent:
                    self._fetch_all(absent, report)
        return tuple(self.folder / jar.file_name for jar in jars)

    def missing(self, jars: Collection[Jar]) -> list[Jar]:
        """Return the jars that are missing or were changed; nothing is fetched."""
        return [jar for jar in jars if not self._is_checked(jar)]

    def recheck(self, jars: Collection[Jar]) -> None:
        """Verify all hashes again; jars that do not match become missing. Called at setup."""
        for jar in jars:
            self._check(jar)

    def _is_checked(self, jar: Jar) -> bool:
        file, sha256 = self.folder / jar.file_name, self._expected(jar)
        try:
            return self._mark(jar).read_text() == _fingerprint(file, sha256)
        except FileNotFoundError:
            return False

    def _check(self, jar: Jar) -> bool:
        file, sha256 = self.folder / jar.file_name, self._expected(jar)
        if file.is_file() and file_sha256(file) == sha256:
            self._mark(jar).write_text(_fingerprint(file, sha256))
            return True
        self._mark(jar).unlink(missing_ok=True)
        return False

    def _mark(self, jar: Jar) -> Path:
        return self.folder / f"{jar.file_name}.checked"

    def _first(self, jar: Jar) -> Path:
        """The file with the hash of a jar's first download."""
        return self.folder / f"{jar.file_name}.sha256"

    def _expected(self, jar: Jar) -> str | None:
        if jar.sha256 is None:
            with suppress(FileNotFoundError):
                return self._first(jar).read_text() or None
        return jar.sha256

    def _fetch_all(self, jars: Collection[Jar], report: Callable[[str], None]) -> None:
        # Ivy caches downloads. A new folder for each use prevents the reuse of a broken
        # download or of the user's incomplete ~/.m2.
        with (
            tempfile.TemporaryDirectory(dir=self.folder, prefix="ivy-") as ivy,
            self._ivy_gateway(Path(ivy)) as gateway,
        ):
            for jar in jars:
                report(f"fetching {jar.coordinates}")
                self._keep(jar, self._fetch(gateway, jar))

    @contextmanager
    def _ivy_gateway(self, ivy: Path) -> Iterator[JavaGateway]:
        conf = {
            name: self.spark_conf[name] for name in PASSED_TO_IVY if name in self.spark_conf
        }
        conf |= {
            "spark.jars.ivy": str(ivy),
            "spark.driver.defaultJavaOptions": f"-Duser.home={ivy} -XX:TieredStopAtLevel=1",
        }
        with spark_environment(self.java):
            gateway = open_gateway(conf, log=self.log)
        try:
            yield gateway
        finally:
            close_gateway(gateway)

    def _fetch(self, gateway: JavaGateway, jar: Jar) -> Path:
        """Fetch the jar with Ivy, with retries for network failures."""

        @retry(
            retry=retry_if_exception_type(Py4JJavaError),
            stop=stop_after_attempt(3),
            wait=wait_exponential(multiplier=0.5),
            reraise=True,
        )
        def ask() -> list[str]:
            uri = gateway.jvm.java.net.URI(f"ivy://{jar.coordinates}?transitive=false")
            found = gateway.jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
                uri
            )
            return str(found.mkString("\n")).splitlines()

        try:
            files = ask()
        except Py4JJavaError as error:
            cause = str(error.java_exception.getMessage()).splitlines()[0]
            raise SetupError(
                problem=f"Could not fetch {jar.coordinates}: {cause}.",
                fix="Check the coordinates and the network, or set a mirror in "
                f"spark.jars.ivySettings (spark_conf); details are in {self.log}.",
            ) from None
        if len(files) != 1:
            raise SetupError(
                problem=f"{jar.coordinates} resolved to {len(files)} files, expected one.",
                fix="Correct its coordinates.",
            )
        return Path(unquote(urlparse(files[0]).path))

    def _keep(self, jar: Jar, fetched: Path) -> None:
        found, expected = file_sha256(fetched), self._expected(jar)
        if expected not in {None, found}:
            known = "was locked" if jar.sha256 else "was fetched first"
            raise SetupError(
                problem=f"{jar.coordinates} is not the jar that {known}: "
                f"its SHA-256 is {found}, expected {expected}.",
                fix="Check the mirror it came from; set the new hash only if you trust it.",
            )
        self._first(jar).write_text(found)
        shutil.move(fetched, self.folder / jar.file_name)  # a rename in the same file system
        self._check(jar)


def _fingerprint(file: Path, sha256: str | None) -> str:
    status = file.stat()
    return f"{sha256} {status.st_size} {status.st_mtime_ns}"


def file_sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
