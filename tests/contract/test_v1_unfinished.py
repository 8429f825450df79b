"""Batches are given up over our own REST API, and real targets are asked first."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.contract.v1_client import V1, v1_client
from tests.unit.topics.made_topics import append

from headrace.model import ConnectorKind, Stamp, TargetState, TaskId
from headrace.rest import Role
from headrace.rest.v1.app import needed_role
from headrace.sdk import Mark, Position

pytestmark = pytest.mark.timeout(60)
PATH = "/connectors/in/tasks/0/batches/1/give-up"
TASK = TaskId("in", 0)
NOW = datetime.now(UTC)
END = Position.of({"path": "/files"}, {"files": 3})


@pytest.fixture
def v1(tmp_path: Path) -> Iterator[V1]:
    with v1_client(tmp_path) as client:
        config = {
            "connector.class": "headrace_plugins.connectors.file.source.FileSource",
            "path": str(tmp_path),
            "format": "text",
            "topic": "lines",
        }
        client.make("in", **config)
        client.server.connectors.set_target("in", TargetState.STOPPED, "test")
        client.await_stopped("in")
        store = client.server.state_store
        lease = store.lease(TASK, "w", NOW, timedelta(minutes=1))
        store.begin_batch(TASK, lease.epoch, Position(), END, NOW)
        store.release(lease)
        yield client


def test_a_batch_that_no_target_holds_is_given_up(v1: V1) -> None:
    dry = v1("POST", PATH, {"dry_run": True}).json()
    assert (dry["done"], dry["task"], dry["batch"]["id"]) == (False, 0, 1)
    assert [(each["name"], each["holds"]) for each in dry["targets"]] == [
        ("headrace.dataplane.topic_sinks.TopicsWriter", "no")
    ]
    given = v1("POST", PATH, {"skip": True}).json()
    assert given["done"]
    assert given["meaning"] == (
        "The records between the beginning and path /files, files 3 are skipped: a target "
        "that does not have them yet never gets them."
    )
    assert v1.server.state_store.position(TASK) == END
    [told] = v1("GET", "/connectors/in/offsets/history").json()
    assert (told["action"], told["by"]) == ("give-up", "anonymous@127.0.0.1")
    assert v1("POST", PATH, {}).status_code == 409


def test_a_batch_that_a_target_holds_is_kept(v1: V1) -> None:
    uid = v1.server.connectors.get("in").uid
    append(v1.runtime.topics.get("lines"), [[1]], Mark(f"in-{uid}-0", 1, 1))
    refused = v1("POST", PATH, {})
    assert refused.status_code == 409
    assert "holds batch 1 of task in-0" in str(refused.json())
    assert v1("POST", PATH, {"force": True}).json()["done"]


def renaming(v1: V1, regex: str, replacement: str) -> None:
    """Let the chain rename topics from now on."""
    kept = v1.server.wanted.connector("in")
    assert kept is not None
    router = {"type": "RegexRouter", "regex": regex, "replacement": replacement}
    config = {**kept.config, "transforms": "r"}
    config |= {f"transforms.r.{key}": text for key, text in router.items()}
    v1.server.wanted.configure("in", ConnectorKind.SOURCE, config, Stamp(NOW, "test"))


def held(v1: V1, topic: str, part: str = "") -> None:
    """Let a topic hold the batch, or a part of it."""
    uid = v1.server.connectors.get("in").uid
    append(v1.runtime.topics.get(topic), [[1]], Mark(f"in-{uid}-0{part}", 1, 1))


def in_use(v1: V1, *topics: str) -> None:
    kept = v1.server.wanted.connector("in")
    assert kept is not None
    v1.server.wanted.add_topics(kept, topics)


@pytest.mark.parametrize("topics", [(), ("renamed",)])
def test_a_batch_that_the_chain_has_sent_into_another_topic_is_found_there(
    v1: V1, topics: tuple[str, ...]
) -> None:
    # Where the name is told by the chain; else where it was used before.
    renaming(v1, "lines", "$0" if topics else "renamed")
    in_use(v1, *topics)
    held(v1, "renamed")
    assert [
        each["holds"] for each in v1("POST", PATH, {"dry_run": True}).json()["targets"]
    ] == ["yes"]
    refused = v1("POST", PATH, {})
    assert "TopicsWriter holds batch 1 of task in-0" in str(refused.json())


@pytest.mark.parametrize(
    ("topic", "part", "replacement", "told"),
    [
        ("a", "/a", "$0", "a"),  # routed by the data
        ("a", "/a", "x-$0", "a"),
        ("s", "/s", "$0", "s"),  # a stream of several
        ("x-s", "/s", "x-$0", "s"),
    ],
)
def test_a_part_of_a_batch_is_not_taken_for_all_of_it(
    v1: V1, topic: str, part: str, replacement: str, told: str
) -> None:
    renaming(v1, ".*", replacement)
    in_use(v1, "a", "b", "s")
    held(v1, topic, part)
    [target] = v1("POST", PATH, {"dry_run": True}).json()["targets"]
    assert target["holds"] == "part"
    assert target["why"] == f"It has the part of {told}; the rest may be missing."
    refused = v1("POST", PATH, {})
    assert refused.status_code == 409
    assert "Batch 1 of task in-0 is partly written" in str(refused.json())
    assert "records that are not written yet are then lost" in str(refused.json())
    assert v1("POST", PATH, {"force": True}).json()["done"]


def test_a_target_that_cannot_be_asked_is_no_target_without_the_batch(v1: V1) -> None:
    gone = {"connector.class": "a.plugin.that.is.gone", "topic": "lines"}
    v1.server.wanted.configure("in", ConnectorKind.SOURCE, gone, Stamp(NOW, "test"))
    refused = v1("POST", PATH, {})
    assert refused.status_code == 409
    assert "Cannot determine whether batch 1 was written" in str(refused.json())


def test_giving_up_is_for_operators() -> None:
    assert needed_role("POST", f"/v1{PATH}") is Role.OPERATOR
