"""Finds the place in a binary log that belongs to a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError, RetriableError
from headrace_plugins.connectors.mysql import binlog_events as events

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace_plugins.changes.log import Offset
    from headrace_plugins.connectors.mysql.binlog_dump import Dump

_LOOK_SECONDS = 1.0


def place_since(dump: Dump, files: Sequence[str], since: datetime) -> Offset | None:
    """Return the start of the first transaction with this time or a later one.

    Everything after it in the log is included, regardless of its times: those of replicas are
    not in order. Returns None if there is no such transaction. Raises ConfigError if the log
    starts after the time.

    Args:
        dump: The connection; the caller closes it.
        files: The server's log files, the oldest first.
        since: A time, truncated to whole seconds.
    """
    seconds, number = int(since.timestamp()), len(files)
    began, headers = seconds, iter(list[tuple[int, int, int, int]]())
    while number and began >= seconds:  # the previous file may have events of the same second
        number -= 1
        headers = _headers(dump, files[number])
        began = next(ts for ts, kind, *_ in headers if kind == events.FORMAT_DESCRIPTION)
    if began > seconds:
        raise ConfigError(
            problem=f"The binary log begins at {datetime.fromtimestamp(began, UTC)}, with "
            f"{files[0]}.",
            fix="Set a later time, or read the current rows of the tables: for a connector by "
            "headrace connector tables resync NAME TABLE, for a job with the source jdbc.",
            field="offsets",
        )
    for ts, kind, size, pos in headers:
        if kind == events.FORMAT_DESCRIPTION:
            if number + 1 == len(files):
                raise RetriableError(problem="A file was added to the binary log meanwhile.")
            return {"file": files[number + 1], "pos": 4}
        if kind in events.GTIDS and ts >= seconds:
            return {"file": files[number], "pos": pos - size}
        if kind in {events.HEARTBEAT, events.HEARTBEAT_V2}:
            break  # heartbeats are sent only at the end of the log
    return None


def _headers(dump: Dump, file: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield time, type, length and end of the events of a file and of later files."""
    dump.open()
    dump.request(file, 4, None)
    place = 0
    while True:
        found = dump.packet(place)
        if found is None:
            del dump.data[:place]
            place = 0
            dump.receive(_LOOK_SECONDS)
            continue
        ts, kind, _, size, pos, _ = events.HEADER.unpack_from(dump.data, found[0])
        place = found[1]
        yield ts, kind, size, pos
