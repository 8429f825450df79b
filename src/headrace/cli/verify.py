"""``headrace verify``: compares targets with their sources."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import count
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, OneConnector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.cli.terminal import Terminal
    from headrace.dataplane import Difference, TableResult
    from headrace.runtime.verification import VerifyReport

_HEADINGS = (
    *("stream", "target", "source rows", "target rows"),
    *("missing", "extra", "different", "moved", "verdict"),
)
_FIGURES = _HEADINGS[2:-1]
_CELL = 60


def verify(  # noqa: PLR0917 - its options
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A JSON or YAML file.")],
    connector: OneConnector = None,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="Only this stream or table; repeatable."),
    ] = None,
    max_differences: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many differing rows to show.")
    ] = 20,
    settle: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Wait before reading differing keys again, doubling the wait each time, "
            "because both sides may change; 0 reads once.",
        ),
    ] = 5,
    allow_loss: Annotated[
        bool,
        typer.Option("--allow-loss", help="Ignore digits that the target type cannot store."),
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Write differing and missing rows again.")
    ] = False,
    delete_extra: Annotated[
        bool,
        typer.Option(
            "--delete-extra", help="With --repair: delete rows that are not in the source."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Compare a connector's sources with its targets, down to the row.

    Compares counts and checksums first, and rows by key only where these differ. Transforms are
    applied to the source rows as in a run. Exits with 0 if everything is equal, and with 5 if
    anything differs; with --repair, if anything still differs afterwards.
    """
    from headrace.cli.failures import DIFFERENT, UsageError
    from headrace.cli.validate import accepted_files

    if delete_extra and not repair:
        problem = "--delete-extra needs --repair."
        raise UsageError(problem, field="--delete-extra", fix="Pass both.")
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.runtime(short_lived=True, copies=True) as runtime:
        checked = accepted_files(runtime, [file], terminal)
        from headrace.control import copies_of
        from headrace.dataplane import VerifyOptions
        from headrace.runtime.verification import RepairOptions

        copies = copies_of([each for _, each in checked.definitions], connector)
        with terminal.status("starting Spark") as shown:
            options = VerifyOptions(
                max_differences=max_differences,
                settle=timedelta(seconds=settle),
                allow_loss=allow_loss,
                report=getattr(shown, "update", terminal.note),
            )
            repairs = RepairOptions(delete_extra=delete_extra) if repair else None
            reports = runtime.verify(copies, options, stream or (), repairs)
    _show(terminal, reports)
    return 0 if all(each.equal for each in reports) else DIFFERENT


def _show(terminal: Terminal, reports: Sequence[VerifyReport]) -> None:
    from headrace.cli.terminal import table

    if terminal.as_json:
        equal = all(each.equal for each in reports)
        connectors = [report_json(each) for each in reports]
        terminal.print_json({"equal": equal, "connectors": connectors})
        return
    shown = table(*_HEADINGS, right=_FIGURES)
    for result in (result for report in reports for result in report.tables):
        shown.add_row(*_row(result))
    terminal.print(shown)
    for line in (line for report in reports for line in _lines(report)):
        terminal.print(line)


def report_json(report: VerifyReport) -> dict[str, Any]:
    """Return the part of ``verify --json`` for one connector."""
    tables = [
        {
            **{name: value for name, value in asdict(table).items() if name != "figures"},
            **{n: value for n, value in asdict(table.figures).items() if n != "keys"},
            "verdict": _verdict(table),
        }
        for table in report.tables
    ]
    return {
        "connector": report.connector,
        "equal": report.equal,
        "tables": tables,
        "skipped": list(report.skipped),
        "dead_letters": report.dead_letters,
    }


def _row(result: TableResult) -> list[str]:
    found = result.figures
    figures = (
        *(result.source_rows, result.target_rows),
        *(found.missing, found.extra, found.different, result.moved),
    )
    return [result.stream, result.target, *map(count, figures), _verdict(result)]


def _verdict(result: TableResult) -> str:
    if result.error:
        return "error"
    if not result.equal:
        return "different"
    return "repaired" if result.repaired else "equal"


def _lines(report: VerifyReport) -> Iterator[str]:
    for result in report.tables:
        figures = {
            "filtered by the transforms": result.filtered,
            "rejected by the source or the transforms": result.rejected,
            "with a duplicate key, of which the target keeps one": result.figures.repeated,
            "written again": result.repaired,
            "that --repair --delete-extra would delete": result.figures.extra,
        }
        for what, rows in figures.items():
            if rows:
                yield f"{result.stream}: {count(rows)} rows {what}"
        yield from (f"{result.stream}: {note}" for note in result.notes)
        if result.error:
            yield f"{result.stream}: not compared: {result.error}"
        for each in result.differences:
            yield ""
            yield from _difference(result.stream, each)
        left = result.figures.keys - len(result.differences)
        if result.differences and left > 0:
            yield f"and {count(left)} more; --max-differences shows more"
    yield from (f"{report.connector}: not compared: {reason}" for reason in report.skipped)
    if report.dead_letters:
        letters = count(report.dead_letters)
        yield f"{report.connector}: {letters} records are in its dead-letter topic"


def _difference(stream: str, found: Difference) -> Iterator[str]:
    from headrace.cli.terminal import text

    key = ", ".join(f"{name}={text(value)}" for name, value in found.key.items())
    yield f"{stream}: {found.kind} row {key}".rstrip()
    for name, sides in found.columns.items():
        if name not in found.key or found.kind == "different":
            yield f"  {name}: {', '.join(_sides(sides))}"


def _sides(sides: Mapping[str, Any]) -> Iterator[str]:
    from headrace.cli.terminal import text

    for side, value in sides.items():
        shown = text(value)
        yield f"{side} {shown if len(shown) <= _CELL else f'{shown[:_CELL]}…'}"
