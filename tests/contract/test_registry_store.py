"""What every store of the schema registry does, whatever it is made of."""

import pickle
import threading
from collections.abc import Callable

import pytest

from headrace.model import DEFAULT_CONTEXT, StoredSchema, Subject, SubjectVersion
from headrace.sdk.schemaregistry import SchemaReference, SchemaText, SchemaType
from headrace.store import (
    MemoryRegistryStore,
    Place,
    RegistrySetting,
    RegistryStore,
    SqlRegistryStore,
)

A, B = Subject("a"), Subject("b")
TEXT = SchemaText('"string"')
USES_A = SchemaText("{}", SchemaType.JSON, (SchemaReference("a.json", "a", 1),))


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, place_of: Callable[[str], Place]):
    kind = request.param
    made: RegistryStore = (
        MemoryRegistryStore() if kind == "memory" else SqlRegistryStore(place_of(kind))
    )
    yield made
    made.close()


def add(store: RegistryStore, schema: SchemaText = TEXT, guid: str = "g", **more) -> int:
    with store.write() as rows:
        context = more.get("context", DEFAULT_CONTEXT)
        return rows.add_schema(context, guid, schema, "", more.get("schema_id"))


def put(store: RegistryStore, *versions: SubjectVersion) -> None:
    with store.write() as rows:
        for version in versions:
            rows.put_version(version)


def test_a_schema_is_found_by_id_and_by_guid(store: RegistryStore) -> None:
    made = add(store, USES_A, "guid")
    with store.read() as rows:
        expected = StoredSchema(DEFAULT_CONTEXT, made, "guid", USES_A)
        assert rows.schema(DEFAULT_CONTEXT, made) == rows.by_guid("guid") == expected
        assert rows.find(DEFAULT_CONTEXT, "guid") == made
        assert rows.find(".other", "guid") is None
        assert rows.schema(".other", made) is None


def test_ids_grow_within_a_context_and_are_never_used_again(store: RegistryStore) -> None:
    assert [add(store, guid="1"), add(store, guid="2")] == [1, 2]
    with store.write() as rows:
        rows.remove_schema(DEFAULT_CONTEXT, 2)
    assert add(store, guid="3") == 3
    assert add(store, guid="4", schema_id=10) == 10
    assert add(store, guid="5", schema_id=7) == 7
    assert add(store, guid="6") == 11
    assert add(store, context=".other") == 1
    with store.read() as rows:
        assert list(rows.contexts()) == [DEFAULT_CONTEXT, ".other"]


def test_versions_are_listed_by_subject_and_by_schema(store: RegistryStore) -> None:
    made = add(store)
    versions = [SubjectVersion(A, 1, made), SubjectVersion(A, 2, made), SubjectVersion(B, 1, 9)]
    put(store, *reversed(versions))
    with store.read() as rows:
        assert list(rows.versions(A)) == versions[:2]
        assert list(rows.versions_of(DEFAULT_CONTEXT, made)) == versions[:2]
        assert list(rows.subjects()) == [(A, True), (B, True)]


def test_a_version_is_replaced_and_removed(store: RegistryStore) -> None:
    made = add(store)
    put(store, SubjectVersion(A, 1, made), SubjectVersion(A, 1, made, deleted=True))
    with store.write() as rows:
        assert list(rows.subjects()) == [(A, False)]
        rows.remove_version(SubjectVersion(A, 1, made))
    with store.read() as rows:
        assert not rows.subjects()
        assert not rows.versions(A)


def test_the_users_of_a_version_are_known(store: RegistryStore) -> None:
    used, using = add(store), add(store, USES_A, "u")
    user = SubjectVersion(B, 1, using, deleted=True)
    put(store, SubjectVersion(A, 1, used), user)
    with store.read() as rows:
        assert list(rows.users(A, 1)) == [user]
        assert list(rows.users(A, 2)) == []


def test_settings_are_kept_by_kind_and_scope(store: RegistryStore) -> None:
    with store.write() as rows:
        rows.put_setting(RegistrySetting.CONFIG, "", "1")
        rows.put_setting(RegistrySetting.CONFIG, "a", "2")
        rows.put_setting(RegistrySetting.CONFIG, "a", "3")
        rows.put_setting(RegistrySetting.MODE, "a", "4")
        rows.put_setting(RegistrySetting.MODE, "a", None)
    with store.read() as rows:
        assert rows.setting(RegistrySetting.CONFIG, "") == "1"
        assert rows.setting(RegistrySetting.CONFIG, "a") == "3"
        assert rows.setting(RegistrySetting.MODE, "a") is None


def test_a_transaction_that_raises_leaves_nothing(store: RegistryStore) -> None:
    add(store, guid="kept")

    def fail() -> None:
        with store.write() as rows:
            rows.add_schema(DEFAULT_CONTEXT, "lost", TEXT, "", None)
            rows.put_version(SubjectVersion(A, 1, 2))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with store.read() as rows:
        assert rows.find(DEFAULT_CONTEXT, "lost") is None
        assert list(rows.subjects()) == []
    assert add(store, guid="next") == 2


def test_writers_wait_for_one_another(store: RegistryStore) -> None:
    made: list[int] = []
    threads = [
        threading.Thread(target=lambda n=number: made.append(add(store, guid=str(n))))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == list(range(1, 9))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_keeps_everything_and_a_pickled_store_opens_it(
    kind: str, place_of: Callable[[str], Place]
) -> None:
    store = SqlRegistryStore(place_of(kind))
    made = add(store, USES_A)
    store.close()
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own
    with copy.read() as rows:
        assert rows.schema(DEFAULT_CONTEXT, made).schema == USES_A
    copy.close()
