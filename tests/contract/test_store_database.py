"""What the databases of stores do beyond the Protocols: migrations, races, going away."""

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from tests.postgresql_server import PostgresqlServer

from headrace.model import Counts, TaskId, TaskState, TaskStatus
from headrace.sdk import ConfigError, Position, Schema, StateError
from headrace.sdk.errors import SetupError, StaleEpochError
from headrace.store import Place, Store, StoreUnavailableError
from headrace.store import migrations as migrations_module
from headrace.store.database import open_database
from headrace.store.migrations import HEAD
from headrace.store.tables import metadata
from headrace_registry.store import SqlRegistryStore
from headrace_registry.store import metadata as registry_metadata

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
TASK = TaskId("orders", 0)
HERE, THERE = Position(), Position.of({"file": "a"}, {"line": 1})


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, place_of: Callable[[str], Place]) -> Place:
    return place_of(request.param)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_place(
    request: pytest.FixtureRequest, tmp_path: Path, postgresql: PostgresqlServer
) -> Iterator[Place]:
    if request.param == "sqlite":
        yield tmp_path / "store.db"
        return
    with postgresql.database() as url:
        yield url


def at_once(work: Callable[[int], Any], workers: int = 6) -> list[Any]:
    barrier = threading.Barrier(workers)

    def one(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, range(workers)))


def test_a_new_database_has_the_tables_that_the_stores_use(empty_place: Place) -> None:
    engine = open_database(empty_place)
    registry = SqlRegistryStore(empty_place)
    with registry.read() as rows:
        assert rows.subjects() == []
    registry.close()
    with engine.connect() as db:
        both: Any = [metadata, registry_metadata]
        assert compare_metadata(MigrationContext.configure(db), both) == []
    engine.dispose()


def test_the_newest_revision_is_the_last_of_the_chain() -> None:
    folder = Path(migrations_module.__file__).parent
    assert ScriptDirectory(str(folder)).get_heads() == [HEAD]


def test_all_that_open_a_new_database_at_once_get_it(empty_place: Place) -> None:
    stores = at_once(lambda _: Store(empty_place))
    assert len({store.register("orders") for store in stores}) == 1
    for store in stores:
        store.close()


def test_an_older_database_is_migrated_and_keeps_its_rows(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(place)
    uid = store.register("orders")
    store.close()
    newer = tmp_path / "migrations"
    shutil.copytree(Path(migrations_module.__file__).parent, newer)
    (newer / "versions" / "s9999_colours.py").write_text(
        "import sqlalchemy as sa\n"
        "from alembic import op\n"
        f"revision, down_revision = '9999', '{HEAD}'\n"
        "def upgrade():\n"
        "    op.add_column('connectors', sa.Column('colour', sa.String))\n"
    )
    with monkeypatch.context() as patch:
        patch.setattr(migrations_module, "_FOLDER", newer)
        patch.setattr(migrations_module, "HEAD", "9999")
        engine = open_database(place)
        with engine.connect() as db:
            rows = db.execute(text("SELECT * FROM connectors")).mappings().all()
            revision = db.execute(text("SELECT version_num FROM alembic_version")).scalar()
        engine.dispose()
    assert ([row["uid"] for row in rows], revision) == ([uid], "9999")
    assert "colour" in rows[0]
    with pytest.raises(SetupError, match="Another version of Headrace"):
        Store(place)


def test_a_store_of_a_newer_version_is_refused(place: Place) -> None:
    engine = open_database(place)
    with engine.begin() as db:
        db.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(SetupError, match="Another version of Headrace"):
        Store(place)


@pytest.mark.parametrize(
    "without", ["DROP TABLE alembic_version", "DELETE FROM alembic_version"]
)
def test_tables_without_a_revision_are_not_taken_for_new_ones(
    place: Place, without: str
) -> None:
    engine = open_database(place)
    with engine.begin() as db:
        db.execute(text(without))
    engine.dispose()
    with pytest.raises(SetupError, match="Another version of Headrace"):
        Store(place)


def test_one_of_many_owners_gets_a_task_and_an_old_epoch_writes_nothing(place: Place) -> None:
    stores = [Store(place) for _ in range(6)]

    def take(number: int) -> int | None:
        try:
            return stores[number].lease(TASK, f"w{number}", NOW, LEASE).epoch
        except StateError:
            return None

    taken = [epoch for epoch in at_once(take) if epoch is not None]
    assert taken == [1]

    def write(number: int) -> str:
        store = stores[number]
        try:
            if number == 0:
                store.lease(TASK, "next", NOW + LEASE, LEASE)
                return "leased"
            batch = store.begin_batch(TASK, 1, store.position(TASK), THERE, NOW)
            store.finish_batch(TASK, 1, batch.id, Counts(read=1, written=1), NOW)
        except (StaleEpochError, StateError) as error:
            return type(error).__name__
        return "written"

    done = at_once(write)
    # Whatever came before the lease is whole, and counted once; whatever came after is not.
    written = done.count("written")
    assert done[0] == "leased"
    assert written <= 1
    assert stores[0].totals(TASK).written == written
    with pytest.raises(StaleEpochError):
        stores[1].ledger_append(TASK, 1, [{"path": "a"}])
    for store in stores:
        store.close()


def test_writers_at_once_agree_on_identities_and_versions(place: Place) -> None:
    stores = [Store(place) for _ in range(6)]
    assert len(set(at_once(lambda n: stores[n].register("orders")))) == 1

    def put(number: int) -> int:
        return stores[number].put_schema(
            "orders", "s", Schema.struct({f"f{number}": Schema.int32()})
        )

    assert sorted(at_once(put)) == [1, 2, 3, 4, 5, 6]
    for store in stores:
        store.close()


def test_texts_of_any_kind_are_kept(place: Place) -> None:
    odd = TaskId('o\'rders "1" ; DROP TABLE tasks; 表', 0)
    store = Store(place)
    lease = store.lease(odd, "w", NOW, LEASE)
    position = Position.of({"file": "a\u0000b"}, {"line": "表\n'"})
    store.set_position(odd, lease.epoch, position)
    assert store.position(odd) == position
    status = TaskStatus(TaskState.FAILED, "no\x00thing")
    store.end(lease, status, NOW)
    assert store.statuses(odd.connector)[odd].trace == "no\N{REPLACEMENT CHARACTER}thing"
    store.close()


def test_a_server_that_was_away_serves_again_and_what_it_had_is_there(tmp_path: Path) -> None:
    with PostgresqlServer.running() as server:
        store = Store(server.url())
        epoch = store.lease(TASK, "w", NOW, LEASE).epoch
        batch = store.begin_batch(TASK, epoch, HERE, THERE, NOW)
        with pytest.raises(StoreUnavailableError, match="did not respond"), server.paused():
            store.finish_batch(TASK, epoch, batch.id, Counts(read=1, written=1), NOW)
        store.finish_batch(TASK, epoch, batch.id, Counts(read=1, written=1), NOW)
        assert store.position(TASK) == THERE
        assert store.totals(TASK).written == 1
        store.close()


def test_a_server_that_cannot_be_reached_is_an_unavailable_store() -> None:
    with pytest.raises(
        StoreUnavailableError, match=r"store\.unavailable.* Fix: Restart"
    ) as raised:
        Store("postgresql://nobody@127.0.0.1:1/none")
    assert raised.value.field == "store_url"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://u:hidden-word@h/db", "cannot be in 'mysql'"),
        ("no url: hidden-word", "cannot be parsed"),
        ("postgresql://u:hidden-word@127.0.0.1:1/db", "did not respond"),
    ],
)
def test_a_place_that_is_none_is_refused_without_its_password(url: str, told: str) -> None:
    with pytest.raises((ConfigError, StoreUnavailableError), match=told) as refused:
        Store(url)
    assert refused.value.field == "store_url"
    assert "hidden-word" not in str(refused.value)
    assert refused.value.fix
