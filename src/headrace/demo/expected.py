"""What the pipelines should do, said in DuckDB's SQL over the CSV files.

It is written apart from the definitions and by other means, so that the check is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Target:
    """A target, and the rows it should hold.

    Args:
        name: What it is called.
        rows: Selects those rows from the tables of the CSV files.
        path: Its folder, within the demo's; ``tables/<name>`` if empty.
        delta: Whether it is a Delta table, or else plain Parquet files.
        columns: What is selected from it.
    """

    name: str
    rows: str
    path: str = ""
    delta: bool = True
    columns: str = "*"

    def folder(self, demo: Path) -> Path:
        """Return its folder, given the demo's."""
        return demo / (self.path or f"tables/{self.name}")


@dataclass(frozen=True)
class Move:
    """What a connector should have done with the rows of one CSV file."""

    connector: str
    table: str
    filtered: str = "false"
    rejected: str = "false"


_CANCELLED, _NO_YEAR = "dep_time IS NULL", "year IS NULL"
_FLIGHTS = (
    "SELECT * EXCLUDE (hour, minute) RENAME (tailnum AS plane, dest AS destination) "
    "FROM flights WHERE dep_time IS NOT NULL"
)
_PLANES = "SELECT * EXCLUDE (speed) FROM planes WHERE year IS NOT NULL"
_WEATHER = (
    "SELECT * EXCLUDE (year, month, day, hour) RENAME (temp AS temp_f, dewp AS dewp_f) "
    "FROM weather"
)
_AIRPORTS = "SELECT *, 'US' AS country FROM airports"

TARGETS = (
    Target(
        "topic flights",
        "SELECT * FROM flights",
        path="home/topics/flights",
        columns="unnest(value)",
    ),
    Target("flights", _FLIGHTS),
    Target("planes", _PLANES),
    Target(
        "topic planes.dlq",
        "SELECT tailnum, year FROM planes WHERE year IS NULL",
        path="home/topics/planes.dlq",
        columns="value ->> 'tailnum' AS tailnum, nullif(value ->> 'year', 'NA') AS year",
    ),
    Target("weather", _WEATHER, delta=False),
    Target("airports", _AIRPORTS),
    Target("airports_parquet", _AIRPORTS, delta=False),
)
MOVES = (
    Move("airports", "airports"),
    Move("flights", "flights"),
    Move("flights-sink", "flights", filtered=_CANCELLED),
    Move("planes", "planes"),
    Move("planes-sink", "planes", rejected=_NO_YEAR),
    Move("weather", "weather"),
    Move("weather-sink", "weather"),
)
LIVE_TARGETS = (Target("flights_live", _FLIGHTS),)
LIVE_MOVES = (
    Move("flights-live", "flights"),
    Move("flights-live-sink", "flights", filtered=_CANCELLED),
)
