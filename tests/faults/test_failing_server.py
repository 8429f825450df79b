"""A server that takes no writes, or is killed: the batch runs again and is there once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.database_server import DatabaseServer
from tests.faults.database_targets import SERVERS, variable
from tests.faults.doubles import (
    ROWS,
    TASK,
    NumberTask,
    expected,
    found,
    found_letters,
    ignore,
    is_bad,
    steps,
)
from tests.mariadb_server import MariadbServer
from tests.postgresql_server import PostgresqlServer

from headrace.store import Store

STEPS = steps(1, tolerant=True)
CHOSEN = ("after stage 0", "before commit 0")
"""Those after which the batch is written to the server."""


@pytest.fixture(scope="module", params=SERVERS)
def target(request: pytest.FixtureRequest) -> Iterator[tuple[str, DatabaseServer]]:
    """A server that may be killed, as no other test uses it."""
    kind: type[DatabaseServer]
    kind = PostgresqlServer if request.param == "postgres" else MariadbServer
    with pytest.MonkeyPatch.context() as environment, kind.running() as server:
        environment.setenv(variable(request.param), server.url())
        yield request.param, server


def move(
    store: Store, folder: Path, kind: str, rows: int, reach: Callable[[str], None] = ignore
) -> None:
    task = NumberTask(store, folder, (kind,), tolerant=True, available=rows, reach=reach)
    task.to_end()


def check_steps(
    folder: Path,
    target: tuple[str, DatabaseServer],
    chosen: Sequence[str],
    hurt: Callable[[ExitStack, DatabaseServer], object],
    subtests: pytest.Subtests,
) -> None:
    """A batch whose server is hurt at a step, until the batch has failed, is there once."""
    kind, server = target
    for number, step in enumerate(chosen):
        with subtests.test(step):
            own = folder / str(number)
            own.mkdir()
            store = Store(own / "store.db")
            move(store, own, kind, ROWS)
            with ExitStack() as until_failed:
                hurts: list[str] = []

                def reach(at: str, step: str = step, hurts: list[str] = hurts) -> None:
                    if at == step and not hurts:
                        hurts.append(at)
                        hurt(until_failed, server)

                # Whatever is raised, the batch stays in doubt, and runs again.
                with suppress(Exception):
                    move(store, own, kind, 2 * ROWS, reach)
                assert hurts
            move(store, own, kind, 3 * ROWS)
            assert found(own, kind) == expected(3 * ROWS, tolerant=True)
            assert found_letters(own) == [n for n in range(3 * ROWS) if is_bad(n)]
            assert store.totals(TASK).read == 3 * ROWS
            assert store.totals(TASK).balanced
            store.close()


@pytest.mark.parametrize(
    "chosen", [CHOSEN, pytest.param(STEPS, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_a_batch_whose_server_is_read_only_from_a_step_on_is_there_once_when_it_writes_again(
    tmp_path: Path,
    target: tuple[str, DatabaseServer],
    chosen: Sequence[str],
    subtests: pytest.Subtests,
) -> None:
    check_steps(
        tmp_path,
        target,
        chosen,
        lambda until, server: until.enter_context(server.read_only()),
        subtests,
    )


@pytest.mark.parametrize(
    "chosen", [CHOSEN[1:], pytest.param(STEPS, marks=pytest.mark.long)], ids=["some", "all"]
)
@pytest.mark.parametrize("how", ["killed", "back"])
def test_a_batch_whose_server_is_killed_at_a_step_is_there_once_when_it_is_back(
    tmp_path: Path,
    target: tuple[str, DatabaseServer],
    chosen: Sequence[str],
    how: str,
    subtests: pytest.Subtests,
) -> None:
    def kill(until_failed: ExitStack, server: DatabaseServer) -> None:
        until_failed.enter_context(server.killed())
        if how == "back":  # before the batch finds out
            until_failed.close()

    check_steps(tmp_path, target, chosen, kill, subtests)
