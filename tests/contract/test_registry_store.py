"""What the store of the schema registry does, on each database."""

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from headrace.store import Place
from headrace_plugins.confluent.schema_registry import SchemaReference, SchemaText, SchemaType
from headrace_registry.model import StoredSchema, SubjectVersion
from headrace_registry.store import SqlRegistryStore

A, B = "a", "b"
TEXT = SchemaText('"string"')
USES_A = SchemaText("{}", SchemaType.JSON, (SchemaReference("a.json", "a", 1),))


@pytest.fixture(params=["sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest, place_of: Callable[[str], Place]
) -> Iterator[SqlRegistryStore]:
    with closing(SqlRegistryStore(place_of(request.param))) as made:
        yield made


def add(store: SqlRegistryStore, schema: SchemaText = TEXT, fingerprint: str = "f") -> int:
    with store.write() as rows:
        return rows.add_schema(fingerprint, schema, "")


def put(store: SqlRegistryStore, *versions: SubjectVersion) -> None:
    with store.write() as rows:
        for version in versions:
            rows.put_version(version)


def test_a_schema_is_found_by_id_and_by_fingerprint(store: SqlRegistryStore) -> None:
    made = add(store, USES_A, "print")
    with store.read() as rows:
        assert rows.schema(made) == StoredSchema(made, "print", USES_A)
        assert rows.schema(made + 1) is None
        assert rows.find("print") == made
        assert rows.find("other") is None


def test_ids_grow_and_are_never_used_again(store: SqlRegistryStore) -> None:
    assert [add(store, fingerprint="1"), add(store, fingerprint="2")] == [1, 2]
    with store.write() as rows:
        rows.remove_schema(2)
    assert add(store, fingerprint="3") == 3


def test_versions_are_listed_by_subject_and_by_schema(store: SqlRegistryStore) -> None:
    made = add(store)
    versions = [SubjectVersion(A, 1, made), SubjectVersion(A, 2, made), SubjectVersion(B, 1, 9)]
    put(store, *reversed(versions))
    with store.read() as rows:
        assert list(rows.versions(A)) == versions[:2]
        assert list(rows.versions_of(made)) == versions[:2]
        assert list(rows.subjects()) == [(A, True), (B, True)]


def test_a_version_is_replaced_and_removed(store: SqlRegistryStore) -> None:
    made = add(store)
    put(store, SubjectVersion(A, 1, made), SubjectVersion(A, 1, made, deleted=True))
    with store.write() as rows:
        assert list(rows.subjects()) == [(A, False)]
        rows.remove_version(SubjectVersion(A, 1, made))
    with store.read() as rows:
        assert not rows.subjects()
        assert not rows.versions(A)


def test_the_users_of_a_version_are_known(store: SqlRegistryStore) -> None:
    used, using = add(store), add(store, USES_A, "u")
    user = SubjectVersion(B, 1, using, deleted=True)
    put(store, SubjectVersion(A, 1, used), user)
    with store.read() as rows:
        assert list(rows.users(A, 1)) == [user]
        assert list(rows.users(A, 2)) == []


def test_settings_are_kept_by_scope(store: SqlRegistryStore) -> None:
    with store.write() as rows:
        rows.put_setting("", "1")
        rows.put_setting("a", "2")
        rows.put_setting("a", "3")
        rows.put_setting("b", "4")
        rows.put_setting("b", None)
    with store.read() as rows:
        assert [rows.setting(scope) for scope in ("", "a", "b")] == ["1", "3", None]


def test_a_transaction_that_raises_leaves_nothing(store: SqlRegistryStore) -> None:
    add(store, fingerprint="kept")

    def fail() -> None:
        with store.write() as rows:
            rows.add_schema("lost", TEXT, "")
            rows.put_version(SubjectVersion(A, 1, 2))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with store.read() as rows:
        assert rows.find("lost") is None
        assert list(rows.subjects()) == []
    assert add(store, fingerprint="next") == 2


def test_writers_wait_for_one_another(store: SqlRegistryStore) -> None:
    made: list[int] = []
    threads = [
        threading.Thread(target=lambda n=number: made.append(add(store, fingerprint=str(n))))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == list(range(1, 9))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_who_opens_it_to_read_waits_for_no_writer(
    kind: str, place_of: Callable[[str], Place]
) -> None:
    store = SqlRegistryStore(place_of(kind))
    made = add(store)
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own
    began = time.monotonic()
    with store.write(), copy.read() as rows:
        assert rows.schema(made).schema == TEXT
    assert time.monotonic() - began < 20
    for each in (copy, store):
        each.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_keeps_everything_and_a_pickled_store_opens_it(
    kind: str, place_of: Callable[[str], Place]
) -> None:
    store = SqlRegistryStore(place_of(kind))
    made = add(store, USES_A)
    store.close()
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own
    with copy.read() as rows:
        assert rows.schema(made).schema == USES_A
    copy.close()
