"""The routes of our own REST API that need Spark: dead letters, previews and trials."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.schemathesis_run import schemathesis
from tests.contract.v1_client import V1, v1_client
from tests.unit.worker.scripts import Told

from headrace.model import TargetState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]
SOURCE = """
name: amounts-in
source:
  connector: file
  path: {folder}/in
  format: csv
  schema: id bigint, amount string
topics: amounts
"""


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> Iterator[V1]:
    with v1_client(tmp_path_factory.mktemp("v1"), spark) as client:
        yield client


def sink(folder: Path) -> dict[str, str]:
    return {
        "connector.class": "FileStreamSink",
        "topics": "amounts",
        "file": str(folder / "out.txt"),
        "transforms": "cast",
        "transforms.cast.type": "Cast$Value",
        "transforms.cast.spec": "amount:float64",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "amounts-out.dlq",
    }


@pytest.fixture(scope="module")
def rejecting(v1: V1, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a sink that rejects two of four records; return its folder."""
    tmp_path = tmp_path_factory.mktemp("rejecting")
    reject(v1, tmp_path)
    return tmp_path


def reject(v1: V1, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,amount\n1,1.5\n2,much\n3,3.5\n4,more\n")
    (tmp_path / "source.yaml").write_text(SOURCE.format(folder=tmp_path))
    connectors, config = v1.server.connectors, sink(tmp_path)
    # Its tasks run here, and not as scripts of the server.
    connectors.create("amounts-out", config, "test", TargetState.STOPPED)
    named = connectors.definition({**config, "name": "amounts-out"})
    [source] = v1.runtime.definitions([tmp_path / "source.yaml"])
    for definition in (source, named):
        assert not v1.runtime.run([definition], Told(), once=True).errors


def letters(v1: V1, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = v1("GET", f"/dead-letters/amounts-out.dlq?{query}").json()
    return found


def test_dead_letters_are_shown_discarded_and_sent_again_repaired(
    v1: V1, rejecting: Path
) -> None:
    [group] = v1("GET", "/dead-letters?connector=amounts-out").json()
    assert (group["topic"], group["stage"], group["letters"]) == (
        "amounts-out.dlq",
        "TRANSFORMATION",
        2,
    )
    first, second = letters(v1)
    assert (first["value"], first["connector"]) == ({"id": 2, "amount": "much"}, "amounts-out")
    assert letters(v1, "stage=key_converter") == []
    assert letters(v1, f"id={second['id']}") == [second]

    asked = {"id": [second["id"]]}
    discarded = v1("POST", "/dead-letters/amounts-out.dlq/discard", asked)
    assert discarded.json() == {"discarded": 1}
    [event] = v1("GET", "/events?kind=discarded").json()["items"]
    assert event["detail"] == {"topic": "amounts-out.dlq", "letters": 1}

    repaired = [{"id": first["id"], "value": {"id": 2, "amount": "2.5"}}]
    path = "/connectors/amounts-out/dead-letters/replay"
    sent = v1("POST", path, {"repaired": repaired}).json()
    assert sent == {"records": 1, "unrepaired": 0, "unknown": 0, "error": None}
    assert letters(v1) == []
    assert len((rejecting / "out.txt").read_text().splitlines()) == 3
    counts = v1("GET", "/connectors/amounts-out/counts").json()
    assert (counts["total"]["written"], counts["total"]["rejected"]) == (2, 2)
    assert (counts["replays"]["read"], counts["replays"]["written"]) == (1, 1)


def test_the_schemas_of_a_topic_are_told(v1: V1, rejecting: Path) -> None:
    [schema] = v1("GET", "/topics/amounts/schemas").json()
    assert (schema["stream"], schema["version"], schema["key"]) == ("amounts", 1, None)
    fields = schema["value"]["type"]["fields"]
    assert [field["name"] for field in fields] == ["id", "amount"]


def test_a_configuration_is_previewed_and_leaves_nothing_behind(v1: V1, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "previewed",
        "transforms": "wrap",
        "transforms.wrap.type": "HoistField$Value",
        "transforms.wrap.field": "line",
    }
    shown = v1("POST", "/preview", {"config": config, "rows": 1}).json()
    assert [stage["name"] for stage in shown["stages"]] == ["source", "wrap"]
    assert shown["stages"][1]["records"] == [
        {"key": None, "value": {"line": "one"}, "dropped": None, "error": None}
    ]
    assert v1.runtime.topics.find("previewed") is None
    assert "previewed" not in v1.names("")


def test_each_step_of_a_trial_is_told_for_each_record(v1: V1) -> None:
    config = {
        "transforms": "cast",
        "transforms.cast.type": "Cast$Value",
        "transforms.cast.spec": "float64",
    }
    asked = {"config": config, "records": [{"value": "1.5"}, {"value": "much"}]}
    good, bad = v1("POST", "/transforms/try", asked).json()["results"]
    assert good["record"]["value"] == 1.5
    assert [step["name"] for step in good["steps"]] == ["cast"]
    assert {*bad} == {"steps", "error"}
    assert bad["error"]["class"].endswith("DataException")


@pytest.mark.timeout(3600)
def test_no_answer_of_any_route_is_outside_the_description(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    # A server of its own, as all that it has is discarded, stopped and deleted.
    with v1_client(tmp_path / "v1", spark) as v1:
        reject(v1, tmp_path)
        v1.make("lines/in")
        found = schemathesis(v1.url, tmp_path, "--max-examples", "30")
    print(found.stdout[-2500:])  # noqa: T201 - what it has done, for those who ask
    assert found.returncode == 0, found.stdout[-6000:]
