"""Whatever happens to a topic, its readers get each row once and in order."""

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.topics.made_topics import Clock, append, at, ids, tending

from headrace.model import TopicRetention
from headrace.sdk import DataLostError, Mark, Position, ReadLimit
from headrace.sdk.durability import Durability, durability, set_durability
from headrace.sdk.location import Location
from headrace.topics import TopicReader, Topics, UpkeepPolicy, parse_start

HOUR = timedelta(hours=1)
POLICY = UpkeepPolicy(
    checkpoint_versions=5,
    compact_files=3,
    target_bytes=30_000,
    retention=TopicRetention(age=24 * HOUR),
    log_versions=8,
    every=timedelta(0),
)
LIMITS = st.builds(
    ReadLimit,
    rows=st.none() | st.integers(1, 12),
    size_bytes=st.none() | st.integers(1, 9_000),
)


@dataclass
class Reading:
    """One reader, and what it has still to get: pairs of version and id."""

    reader: TopicReader
    due: list[tuple[int, int]]
    position: Position = field(default_factory=Position)


class TopicMachine(RuleBasedStateMachine):
    """Appends, reads, upkeep and restarts in any order."""

    def __init__(self) -> None:
        super().__init__()
        # No power is lost here, and waiting for the disk was most of the time.
        self.durability = durability()
        set_durability(Durability.OS)
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-"))
        self.clock = Clock()
        self.rows: list[tuple[int, int]] = []  # version and id of each row ever appended
        self.batch = 0

    def teardown(self) -> None:
        set_durability(self.durability)
        shutil.rmtree(self.folder)

    @initialize(retention_bytes=st.none() | st.integers(20_000, 100_000))
    def begin(self, retention_bytes: int | None) -> None:
        self.retention_bytes = retention_bytes
        self.restart()
        self.readings = [Reading(TopicReader(self.topic), []) for _ in range(2)]
        self.append([[2, 1], [1], [3], [1, 1, 1]])
        self.read(1, ReadLimit(rows=2), None)

    @rule()
    def restart(self) -> None:
        topics = Topics(Location.of(self.folder))
        self.topic = topics.get("numbers")
        policy = replace(
            POLICY,
            retention=TopicRetention(age=24 * HOUR, size_bytes=self.retention_bytes),
        )
        self.upkeep = tending(topics, self.clock, policy)
        for reading in getattr(self, "readings", ()):
            reading.reader = TopicReader(self.topic)

    @rule(sizes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), max_size=8))
    def append(self, sizes: list[list[int]]) -> None:
        for files in sizes:
            self.batch += 1
            number = len(self.rows)
            parts = []
            for size in files:
                parts.append(list(range(number, number + size)))
                number += size
            mark = Mark("writer", self.batch, 1)
            version = append(self.topic, parts, mark, self.clock())
            again = append(self.topic, parts, mark, self.clock())
            assert again == version
            added = [(version, row) for ids_ in parts for row in ids_]
            self.rows += added
            for reading in self.readings:
                reading.due += added

    @rule(
        times=st.lists(
            st.sampled_from([HOUR / 12, HOUR / 4, 2 * HOUR, 11 * HOUR]), min_size=1, max_size=3
        )
    )
    def tend(self, times: list[timedelta]) -> None:
        for time in times:
            self.clock.pass_by(time)
            self.upkeep.run_once()
        first, newest = self.topic.first(), self.topic.log.newest()
        for low in range(first - 1, newest, 3):
            self.replayed(low, min(newest, low + 7))

    @rule(which=st.integers(0, 1), limit=LIMITS, until=st.none() | st.integers(0, 60))
    def read(self, which: int, limit: ReadLimit, until: int | None) -> None:
        reading = self.readings[which]
        if until is not None:
            bound = at(self.topic, min(until, self.topic.log.newest()))
            limit = ReadLimit(rows=limit.rows, size_bytes=limit.size_bytes, until=bound)
        start = reading.position or self.oldest(reading)
        try:
            end = reading.reader.latest(start, limit)
            got = ids(reading.reader, start, end)
        except DataLostError as error:
            note(f"lost: {error}")
            self.lose(reading)
            return
        want = [row for _, row in reading.due]
        assert got == want[: len(got)]
        if until is None:
            assert bool(got) == bool(want)
        else:
            last = reading.due[len(got) - 1][0] if got else -1
            assert last <= until
        if end != start:
            reading.position = end
        reading.due = reading.due[len(got) :]

    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """Any range of versions that is kept can be read again."""
        first, newest = self.topic.first(), self.topic.log.newest()
        low = data.draw(st.integers(first - 1, max(newest, first - 1)))
        high = data.draw(st.integers(low, max(newest, low)))
        self.replayed(low, high)

    def replayed(self, low: int, high: int) -> None:
        got = ids(TopicReader(self.topic), at(self.topic, low), at(self.topic, high))
        assert got == [row for version, row in self.rows if low < version <= high]

    @rule()
    def read_as_others_do(self) -> None:
        table = DeltaTable(self.topic.location.local).to_pyarrow_table(columns=["value"])
        held = sorted(value["id"] for value in table.column("value").to_pylist())
        lost = self.topic.lost()
        assert held == [row for version, row in self.rows if version > lost]

    @invariant()
    def marks_outlive_everything(self) -> None:
        assert self.topic.receipt(Mark("writer", self.batch, 1)) is not None

    def oldest(self, reading: Reading) -> Position:
        """A reader without a position starts at the oldest row there is."""
        lost = self.topic.lost()
        reading.due = [(version, row) for version, row in reading.due if version > lost]
        return parse_start(self.topic, "earliest")

    def lose(self, reading: Reading) -> None:
        lost = self.topic.lost()
        assert reading.due, "nothing was left to lose"
        assert reading.due[0][0] <= lost
        reading.position = at(self.topic, lost)
        reading.due = [(version, row) for version, row in reading.due if version > lost]


TestTopic = TopicMachine.TestCase
TestTopic.settings = settings(
    max_examples=8,
    stateful_step_count=50,
    deadline=None,
    # A step takes milliseconds, so shrinking a failure would take many minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
