"""The configuration is changed while a batch is in doubt: nothing is lost, nothing doubled."""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.faults.doubles import (
    ROWS,
    NumberTask,
    expected,
    found,
    found_letters,
    is_bad,
    steps,
)

from headrace.sdk import HeadraceError, StateError
from headrace.store import Store

CHANGES = {
    "a sink added behind": (("delta append",), ("delta append", "lines")),
    "a sink added before": (("delta append",), ("lines", "delta append")),
    "the second sink removed": (("delta append", "lines"), ("delta append",)),
    "the first sink removed": (("delta append", "lines"), ("lines",)),
    "the sinks swapped": (("folder", "lines"), ("lines", "folder")),
    "one sink replaced": (("folder", "lines"), ("folder", "delta upsert")),
    "every sink replaced": (("folder",), ("delta append",)),
    "a database's sink added before": (("lines",), ("sqlite", "lines")),
    "the sinks swapped, one of a database": (("sqlite", "lines"), ("lines", "sqlite")),
    "more sinks, in another order": (("folder", "lines"), ("delta append", "lines", "folder")),
}

SERVED = {
    "a server's sink replaced by another's": (("postgres",), ("mysql",)),
    "one of two servers removed": (("postgres", "mysql"), ("mysql",)),
}


class InterruptedBatchError(Exception):
    """The process was ended, or the target failed."""


def interrupted(task: Callable[..., NumberTask], sinks: Sequence[str], step: str) -> None:
    """Move a batch until it is interrupted at a step."""

    def reach(at: str) -> None:
        if at == step:
            raise InterruptedBatchError

    with suppress(InterruptedBatchError):
        task(sinks, ROWS, reach).to_end()


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("tolerant", [False, True])
@pytest.mark.parametrize(
    "change", [*CHANGES, *(pytest.param(each, marks=pytest.mark.long) for each in SERVED)]
)
def test_each_sink_that_stays_has_each_row_once_whatever_else_is_changed(
    tmp_path: Path, change: str, tolerant: bool, subtests: pytest.Subtests
) -> None:
    before, after = {**CHANGES, **SERVED}[change]
    begun = steps(len(before), tolerant=tolerant)[2:-1]
    for number, step in enumerate(begun):
        with subtests.test(step):
            folder = tmp_path / str(number)
            folder.mkdir()
            store = Store(folder / "store.db")

            def task(
                sinks: Sequence[str],
                rows: int,
                reach: Callable[[str], None] = lambda _: None,
                folder: Path = folder,
                store: Store = store,
            ) -> NumberTask:
                return NumberTask(
                    store, folder, sinks, tolerant=tolerant, available=rows, reach=reach
                )

            interrupted(task, before, step)
            told = None
            try:
                task(after, 2 * ROWS).to_end()
            except HeadraceError as error:
                told = error
                assert told.fix  # it names a way out
            _check(folder, before, after, rows=ROWS if told else 2 * ROWS, tolerant=tolerant)
            store.close()


def _check(
    folder: Path, before: Sequence[str], after: Sequence[str], *, rows: int, tolerant: bool
) -> None:
    wanted = expected(rows, tolerant=tolerant)
    for kind in after:
        held = found(folder, kind)
        assert len(held) == len(set(held)), f"{kind}: rows are there twice"
        assert set(held) == set(wanted), f"{kind}: {set(wanted) - set(held)} are missing"
    for kind in set(before) - set(after):
        held = found(folder, kind)
        assert len(held) == len(set(held)), f"{kind}: rows are there twice"
    if tolerant:
        assert found_letters(folder) == [n for n in range(rows) if is_bad(n)]


@pytest.mark.parametrize("after", [("folder", "lines"), ("lines", "folder"), ("folder",)])
def test_sinks_get_a_batch_from_one_chain_or_its_task_stops(
    tmp_path: Path, after: Sequence[str], subtests: pytest.Subtests
) -> None:
    before = ("folder", "lines")
    for number, step in enumerate(steps(2, tolerant=True)[2:-1]):
        with subtests.test(step):
            folder = tmp_path / str(number)
            folder.mkdir()
            with closing(Store(folder / "store.db")) as store:

                def task(
                    sinks: Sequence[str],
                    chain: str,
                    reach: Callable[[str], None] = lambda _: None,
                    store: Store = store,
                    folder: Path = folder,
                ) -> NumberTask:
                    return NumberTask(
                        store, folder, sinks, tolerant=True, reach=reach, chain=chain
                    )

                interrupted(lambda sinks, _, reach: task(sinks, "one", reach), before, step)
                some_hold_it = found_or_none(folder, "folder") and not found_or_none(
                    folder, "lines"
                )
                if some_hold_it and len(after) > 1:
                    with pytest.raises(StateError, match="other transforms") as refused:
                        task(after, "another").to_end()
                    assert refused.value.fix
                    task(after, "one").to_end()
                else:
                    task(after, "another").to_end()
                _check(folder, before[: len(after)], after, rows=ROWS, tolerant=True)


def found_or_none(folder: Path, kind: str) -> Sequence[object]:
    with suppress(OSError):
        return found(folder, kind)
    return ()
