"""The jars that Spark needs beside its own: locked, fetched once, checked.

Spark's own Ivy fetches them, so Maven is not needed, and the user's mirrors and proxies
(`spark.jars.ivySettings`, `spark.jars.repositories`, `spark.driver.extraJavaOptions`) hold.
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
from headrace.spark.java import Java
from headrace.spark.jvm import close_gateway, open_gateway, spark_environment

LOCK_FILE = Path(__file__).with_name("jars.toml")
PASSED_TO_IVY = (
    "spark.jars.ivySettings",
    "spark.jars.repositories",
    "spark.driver.extraJavaOptions",
)


@dataclass(frozen=True, kw_only=True)
class Jar:
    """One jar: which feature needs it, its Maven coordinates, its hash.

    One without a hash has to stay what it was when it was first fetched into the cache.
    """

    feature: str
    coordinates: str
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        """Its name in the cache; the whole coordinates, so no two jars share one."""
        return self.coordinates.replace(":", "_") + ".jar"


def locked_jars(lock: Path = LOCK_FILE) -> list[Jar]:
    """Return the jars of a lock file, in its order."""
    return [Jar(**entry) for entry in tomllib.loads(lock.read_text())["jar"]]


@dataclass(frozen=True, kw_only=True)
class JarCache:
    """A folder of jars whose contents were checked against their hashes.

    Several processes may use one folder at a time: jars are moved into it whole, by one
    process at a time.
    """

    folder: Path
    java: Java
    spark_conf: Mapping[str, str]

    @property
    def log(self) -> Path:
        """Where Ivy's own output goes."""
        return self.folder / "ivy.log"

    def resolve(
        self, jars: Collection[Jar], *, report: Callable[[str], None] = lambda _: None
    ) -> tuple[Path, ...]:
        """Return the file of each jar, in the given order, after fetching what is missing.

        Takes about a millisecond when all are there: a file that has the size and time it had
        when its hash was computed is not read again. Otherwise one JVM is started, and a jar
        takes about a second.

        Args:
            jars: What is needed.
            report: Called with a text about each jar that is fetched.

        Raises:
            SetupError: A jar cannot be fetched, or has another hash than it must have.
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
        """Return those that are not there as they were checked; nothing is fetched."""
        return [jar for jar in jars if not self._is_checked(jar)]

    def recheck(self, jars: Collection[Jar]) -> None:
        """Forget the files that no longer have the locked hash. Called at set-up."""
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
        """The file that keeps the hash that a jar had when it was first fetched."""
        return self.folder / f"{jar.file_name}.sha256"

    def _expected(self, jar: Jar) -> str | None:
        if jar.sha256 is None:
            with suppress(FileNotFoundError):
                return self._first(jar).read_text() or None
        return jar.sha256

    def _fetch_all(self, jars: Collection[Jar], report: Callable[[str], None]) -> None:
        # Ivy keeps what it fetched; in a folder of its own for each use, a broken download
        # or a half-filled ~/.m2 of the user cannot come back.
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
        """Ask Ivy for the jar; again on failure, as networks fail now and then."""

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
                fix="Check the coordinates and the network, or name a mirror in "
                f"spark.jars.ivySettings (spark_conf); what was tried is in {self.log}.",
            ) from None
        if len(files) != 1:
            raise SetupError(
                problem=f"{jar.coordinates} gave {len(files)} files where one is expected.",
                fix="Correct its coordinates.",
            )
        return Path(unquote(urlparse(files[0]).path))

    def _keep(self, jar: Jar, fetched: Path) -> None:
        found, expected = file_sha256(fetched), self._expected(jar)
        if expected not in {None, found}:
            known = "was locked" if jar.sha256 else "was fetched first"
            raise SetupError(
                problem=f"{jar.coordinates} is not the jar that {known}: "
                f"its SHA-256 is {found}, and was {expected}.",
                fix="Check the mirror it came from; name the new hash only if you trust it.",
            )
        self._first(jar).write_text(found)
        shutil.move(fetched, self.folder / jar.file_name)  # the same file system: a rename
        self._check(jar)


def _fingerprint(file: Path, sha256: str | None) -> str:
    status = file.stat()
    return f"{sha256} {status.st_size} {status.st_mtime_ns}"


def file_sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
