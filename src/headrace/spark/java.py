"""Finds the Java that runs Spark."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.sdk.errors import SetupError

# spark.apache.org/docs/4.2.0: "Spark runs on Java 17/21"
SUPPORTED = (17, 21)
WELL_KNOWN = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"))
_VERSION = re.compile(r'version "((\d+)[^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java installation that Spark can use."""

    home: Path
    version: str
    build: str
    """The last line of `java -version`, which differs from build to build."""

    @property
    def command(self) -> Path:
        return self.home / "bin" / "java"


def find_java(requested: Path | None = None) -> Java:
    """Find a Java 17 or 21: the requested one, or on PATH, or in the systems' usual folders.

    Called once per process, before Spark starts; it runs `java -version`, some 50 ms.

    Raises:
        SetupError: None was found, or the requested one is missing or another version.
    """
    if requested is not None:
        java = _inspect(requested)
        if java is None:
            raise SetupError(
                problem=f"{requested} (from JAVA_HOME) is not a Java {_names()}.",
                fix="Correct JAVA_HOME, or unset it to search for a supported Java.",
            )
        return java
    for home in _candidates():
        java = _inspect(home)
        if java is not None:
            return java
    raise SetupError(
        problem=f"Found no Java {_names()}, which Spark needs.",
        fix="Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set "
        "JAVA_HOME.",
    )


def _names() -> str:
    return " or ".join(str(major) for major in SUPPORTED)


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("java")
    if on_path is not None:
        # bin/java is two levels below the home; on macOS it may be a stub, which _inspect skips
        yield Path(on_path).resolve().parent.parent
    for folder in WELL_KNOWN:
        for home in sorted(folder.glob("*")):
            yield home / "Contents" / "Home" if (home / "Contents").is_dir() else home


def _inspect(home: Path) -> Java | None:
    command = home / "bin" / "java"
    if not command.is_file():
        return None
    try:
        # The path is the user's own JAVA_HOME or PATH.
        output = subprocess.run(  # noqa: S603
            [command, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(output)
    if version is None or int(version[2]) not in SUPPORTED:
        return None
    return Java(home=home, version=version[1], build=output.strip().splitlines()[-1])
