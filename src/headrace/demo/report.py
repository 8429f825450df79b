"""The demo's output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from headrace.demo.check import Finding, Tally
    from headrace.demo.folder import DemoFolder
    from headrace.demo.growth import Latency
    from headrace.model import Counts

_COUNTS = ("read", "written", "filtered", "rejected")


def moves_table(tally: Tally, expected: dict[str, Counts]) -> Table:
    """Return the counts of each connector, and whether they match DuckDB's."""
    table = _table("connector", *_COUNTS, "batches", "as expected")
    for connector, counts in expected.items():
        found = tally.count(connector)
        same = all(getattr(found, name) == getattr(counts, name) for name in _COUNTS)
        table.add_row(
            connector,
            *(f"{getattr(found, name):,}" for name in _COUNTS),
            f"{tally.batches.get(connector, 0)}",
            "yes" if same else "NO",
        )
    return table


def move_differences(tally: Tally, expected: dict[str, Counts]) -> list[str]:
    """Return the counts of connectors that differ from DuckDB's."""
    return [
        f"{connector}: {name} {found:,} instead of {count:,}"
        for connector, counts in expected.items()
        for name in _COUNTS
        if (found := getattr(tally.count(connector), name)) != (count := getattr(counts, name))
    ]


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return DuckDB's results for the targets."""
    table = _table("target", "rows", "columns", "checksum of rows", "same as the CSV")
    for finding in findings:
        table.add_row(
            finding.target,
            f"{finding.rows:,}",
            f"{finding.columns}",
            finding.checksum,
            "NO" if finding.differences else "yes",
        )
    return table


def print_latency(console: Console, found: Latency | None, lines: int, seconds: float) -> None:
    """Print the latency of lines."""
    if found is None:
        return
    console.print(
        f"{lines:,} lines in {seconds:.1f} s, {lines / seconds:,.0f} per second. "
        "Latency from a line's append to the commit in the table: "
        f"median {found.median:.1f} s, 95 % within {found.p95:.1f} s, "
        f"longest {found.longest:.1f} s."
    )


def print_next(console: Console, folder: DemoFolder) -> None:
    """Print what to try next."""
    home = f"--home {folder.home}"
    console.print(
        f"""
What to try next
  headrace run {home} --once {folder.pipeline("flights")}
      copies nothing: the positions are stored, and there is no new data
  headrace preview {home} {folder.pipeline("planes")}
      the first records before and after each transform
  headrace topic peek {home} planes.dlq --rows 1 --json
      a rejected plane, with the cause in its headers
  headrace plugins describe Filter
      the keys of a plugin
The definitions are in {folder.path / "pipelines"}: change one, give it another name and
another target, and run it.""",
        soft_wrap=True,
    )


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        figure = column in {*_COUNTS, "rows", "columns", "batches"}
        table.add_column(column, justify="right" if figure else "left", no_wrap=True)
    return table
