"""Two living owners: one is suspended at a step, another takes over, the first wakes up."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from tests.faults.doubles import (
    ROWS,
    SINKS,
    TASK,
    NumberTask,
    expected,
    found,
    found_letters,
    ignore,
    is_bad,
    steps,
)
from tests.faults.suspended import Case, SuspendedOwner, suspended_owner

from headrace.sdk.errors import StaleEpochError
from headrace.store import Store

LONG = {"mysql": pytest.mark.long}
"""What of a kind takes long, and that another kind shows as well."""
EACH = [pytest.param((kind,), marks=LONG.get(kind, ())) for kind in SINKS]
TWO = ("delta append", "lines")
CHOSEN = ("before commit 0", "after commit 0", "before letters", "before finish")
"""The steps at which one of two owners has changed something that the other sees."""


@dataclass
class Overlap:
    """A task whose first owner is suspended at one step while another owner works on.

    Args:
        folder: Where the targets are, and the store, which has its tables already.
        zombie: The first owner's process.
        sinks: The task's sinks.
        tolerant: Whether bad rows are dead-lettered.
        source: The kind of the database that the rows are in; empty for none.
    """

    folder: Path
    zombie: SuspendedOwner
    sinks: tuple[str, ...]
    tolerant: bool
    source: str = ""
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open the store."""
        self.store = Store(self.folder / "store.db")

    def suspend(self, step: str, rows: int) -> None:
        case = Case(str(self.folder), self.sinks, step, self.tolerant, rows, self.source)
        self.zombie.start(case)

    def wake(self) -> None:
        self.told = self.zombie.wake()

    def move(self, rows: int, reach: Callable[[str], None] = ignore) -> None:
        """Take the task over, as its lease has run out, and move so many rows in all."""
        task = NumberTask(
            self.store,
            self.folder,
            self.sinks,
            owner="new",
            now=lambda: datetime.now(UTC) + timedelta(hours=1),
            tolerant=self.tolerant,
            available=rows,
            reach=reach,
            source=self.source,
        )
        task.to_end()

    def check(self, rows: int) -> None:
        """Each row is in each target once, each bad one among the letters once."""
        for kind in self.sinks:
            assert found(self.folder, kind) == expected(rows, tolerant=self.tolerant), kind
        if self.tolerant:
            assert found_letters(self.folder) == [n for n in range(rows) if is_bad(n)]
        totals = self.store.totals(TASK)
        assert totals.read == rows
        assert totals.balanced

    def check_told(self) -> None:
        """The one that was suspended is told that its task has passed on, and only that."""
        assert self.told[:1] == [StaleEpochError.__name__], self.told


@pytest.fixture(scope="module")
def zombie(servers: None) -> Iterator[SuspendedOwner]:
    with suspended_owner() as owner:
        yield owner


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("store") / "store.db"
    Store(file).close()
    return file


@pytest.fixture
def overlapping(
    zombie: SuspendedOwner, empty_store: Path, tmp_path: Path
) -> Iterator[Callable[..., Overlap]]:
    made: list[Overlap] = []
    numbers = count()

    def overlap(sinks: tuple[str, ...], *, tolerant: bool, source: str = "") -> Overlap:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        shutil.copy(empty_store, folder / "store.db")
        made.append(Overlap(folder, zombie, sinks, tolerant, source))
        return made[-1]

    yield overlap
    for each in made:
        each.store.close()


@pytest.mark.parametrize("sinks", [*EACH, TWO], ids="+".join)
@pytest.mark.parametrize(
    "tolerant", [pytest.param(False, marks=pytest.mark.long), True], ids=["strict", "tolerant"]
)
def test_an_owner_that_wakes_after_the_next_has_moved_on_changes_nothing(
    overlapping: Callable[..., Overlap],
    sinks: tuple[str, ...],
    tolerant: bool,
    subtests: pytest.Subtests,
) -> None:
    for step in steps(len(sinks), tolerant=tolerant):
        with subtests.test(step):
            overlap = overlapping(sinks, tolerant=tolerant)
            overlap.suspend(step, ROWS)
            # The next owner finishes the batch in doubt, and moves another.
            overlap.move(2 * ROWS)
            overlap.wake()
            if step != "before acknowledge":  # its batch is finished, and nothing is left
                overlap.check_told()
            overlap.check(2 * ROWS)
            overlap.move(3 * ROWS)
            overlap.check(3 * ROWS)


@pytest.mark.parametrize("sinks", [*EACH, TWO], ids="+".join)
def test_an_owner_that_wakes_amid_the_next_ones_batch_spoils_nothing_of_it(
    overlapping: Callable[..., Overlap], sinks: tuple[str, ...], subtests: pytest.Subtests
) -> None:
    for step, other in _pairs(len(sinks)):
        with subtests.test(f"{step}, {other}"):
            overlap = overlapping(sinks, tolerant=True)
            overlap.suspend(step, ROWS)
            _wake_at(overlap, other)
            overlap.check(ROWS)
            overlap.move(2 * ROWS)
            overlap.check(2 * ROWS)


@pytest.mark.parametrize(
    "source", ["sqlite", "postgres", pytest.param("mysql", marks=pytest.mark.long)]
)
def test_rows_of_a_table_that_two_owners_read_at_a_time_arrive_once(
    overlapping: Callable[..., Overlap], source: str, subtests: pytest.Subtests
) -> None:
    for step in steps(1, tolerant=True):
        with subtests.test(step):
            overlap = overlapping(("lines",), tolerant=True, source=source)
            overlap.suspend(step, ROWS)
            _wake_at(overlap, "after stage 0", 2 * ROWS)
            overlap.check(2 * ROWS)


def _pairs(sinks: int) -> list[tuple[str, str]]:
    """Return the step at which the first owner stops, with that at which it wakes."""
    chosen = steps(sinks, tolerant=True)
    if sinks == 1:
        chosen = [step for step in chosen if step in CHOSEN]
    planned = ("after lease", "after plan")
    return [
        (first, second)
        for first in chosen
        for second in chosen
        # Once a batch is begun the next owner has nothing to plan.
        if second not in {"after plan", "after begin"} or first in planned
    ]


def _wake_at(overlap: Overlap, step: str, rows: int = ROWS) -> None:
    """Run the next owner to its end; at a step of its batch the first one wakes and ends.

    What the first has committed meanwhile the next one is told of: it looks again.
    """
    woken = False

    def reach(at: str) -> None:
        nonlocal woken
        if at == step and not woken:
            woken = True
            overlap.wake()

    overlap.move(rows, reach)
    if not woken:
        overlap.wake()
