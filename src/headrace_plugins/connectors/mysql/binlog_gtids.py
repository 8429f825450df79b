"""GTID sets of MySQL and MariaDB."""

from __future__ import annotations

import re
import struct
from uuid import UUID

from typing_extensions import override

from headrace_plugins.databases.database import DatabaseError

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ONE = rf"(?:{_UUID}(?:\s*:\s*(?:[a-z_]\w*|\d+(?:-\d+)?))+|\d+-\d+-\d+)"
_SET = re.compile(rf"(?i)\s*{_ONE}(?:\s*,\s*{_ONE})*\s*")


def is_gtid_set(value: object) -> bool:
    """Return whether a value is a GTID set as a server writes it."""
    return isinstance(value, str) and _SET.fullmatch(value) is not None


class GtidSet:
    """A set of executed GTIDs, to which a reader adds.

    MySQL's sets are intervals of numbers per server, `uuid:1-5:9,uuid:1-3`, and since 8.3 also
    per tag, `uuid:1-5:tag:1-3`. MariaDB's contain the last GTID per domain, `0-1-77,1-4-3`.
    """

    def __init__(self, text: str) -> None:
        self._intervals: dict[str, list[list[int]]] = {}
        self._last: dict[str, str] = {}
        for part in filter(None, (each.strip() for each in text.split(","))):
            source, *ranges = (each.strip().lower() for each in part.split(":"))
            if not ranges:
                self._last[part.partition("-")[0]] = part
            name = source
            for each in ranges:
                if not each[0].isdigit():
                    name = f"{source}:{each}"
                    continue
                first, _, last = each.partition("-")
                own = self._intervals.setdefault(name, [])
                own.append([int(first), int(last or first)])
                own.sort()

    def add(self, gtid: str) -> None:
        """Add the GTID of a transaction."""
        source, colon, number = gtid.rpartition(":")
        if not colon:
            self._last[gtid.partition("-")[0]] = gtid
            return
        own, found = int(number), self._intervals.setdefault(source.lower(), [])
        if found and found[-1][1] == own - 1:  # the usual case
            found[-1][1] = own
            return
        if any(first <= own <= last for first, last in found):
            return
        found.append([own, own])
        found.sort()
        joined = found[:1]
        for interval in found[1:]:
            if interval[0] == joined[-1][1] + 1:
                joined[-1][1] = interval[1]
            else:
                joined.append(interval)
        self._intervals[source.lower()] = joined

    def covers(self, other: GtidSet) -> bool:
        """Return whether this set contains all of another set."""
        for source, intervals in other._intervals.items():
            own = self._intervals.get(source, [])
            if not all(any(a <= x and y <= b for a, b in own) for x, y in intervals):
                return False
        return all(
            _number(self._last.get(domain, "")) >= _number(gtid)
            for domain, gtid in other._last.items()
        )

    def filled(self, server: str) -> GtidSet:
        """Return the set without the gaps between a MySQL server's own numbers.

        They increase in the server's own log. The set lacks transactions that the server was
        committing when it was queried, although they are before that place in the log.
        """
        found = GtidSet(str(self))
        for source, intervals in found._intervals.items():
            if source.partition(":")[0] == server.lower():
                intervals[:] = [[intervals[0][0], intervals[-1][1]]]
        return found

    def packed(self) -> bytes:
        """Return MySQL's set encoded for the protocol, in the tagged form if it has tags."""
        count, is_tagged = len(self._intervals), any(":" in each for each in self._intervals)
        parts = [struct.pack("<Q", count << 8 | 1 << 56 | 1 if is_tagged else count)]
        for source, intervals in sorted(self._intervals.items()):
            uuid, _, tag = source.partition(":")
            head = bytes([len(tag) << 1]) + tag.encode() if is_tagged else b""
            parts += [UUID(uuid).bytes, head, struct.pack("<Q", len(intervals))]
            parts += [struct.pack("<QQ", first, last + 1) for first, last in intervals]
        return b"".join(parts)

    @classmethod
    def unpacked(cls, data: bytes) -> GtidSet:
        """Decode the form of ``packed``, which is also at the start of a file of MySQL's log.

        Raises DatabaseError if it is incomplete.
        """
        try:
            return cls(cls._text_of(data))
        except (struct.error, ValueError, IndexError) as error:
            problem = f"The binary log contains a damaged GTID set: {error}."
            raise DatabaseError(problem=problem) from error

    @staticmethod
    def _text_of(data: bytes) -> str:
        [head], place, parts = struct.unpack_from("<Q", data), 8, list[str]()
        is_tagged = head >> 56 == 1
        for _ in range(head >> 8 & 0xFFFFFFFFFFFF if is_tagged else head):
            name, place = str(UUID(bytes=data[place : place + 16])), place + 16
            if is_tagged:
                size = data[place] >> 1
                tag, place = data[place + 1 : place + 1 + size].decode(), place + 1 + size
                name = f"{name}:{tag}" if tag else name
            [count] = struct.unpack_from("<Q", data, place)
            ends = iter(struct.unpack_from(f"<{2 * count}Q", data, place + 8))
            parts += [
                f"{name}:{first}-{end - 1}" for first, end in zip(ends, ends, strict=True)
            ]
            place += 8 + 16 * count
        return ",".join(parts)

    @override
    def __str__(self) -> str:
        """Return the set as the server writes it, so that equal sets have equal texts."""
        servers: dict[str, list[str]] = {}
        for source, intervals in sorted(self._intervals.items()):
            server, _, tag = source.partition(":")
            spans = [f"{a}-{b}" if a < b else str(a) for a, b in intervals]
            servers.setdefault(server, []).extend([tag, *spans] if tag else spans)
        parts = [":".join([server, *each]) for server, each in servers.items()]
        return ",".join([*parts, *self._last.values()])


def _number(gtid: str) -> int:
    return int(gtid.rpartition("-")[2] or 0)
