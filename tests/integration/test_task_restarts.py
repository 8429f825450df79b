"""Failed tasks that start anew by themselves, on a real server."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration import failing_source
from tests.waiting import until

from headrace.model import TaskId
from headrace.runtime.app import Runtime
from headrace.settings import load_settings
from headrace.worker.events import LoggedEvents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(120)


def test_a_connector_may_ask_for_restarts_where_the_server_does_not(
    spark: "SparkSession", tmp_path: Path
) -> None:
    go = tmp_path / "go"
    settings = load_settings(home=tmp_path / "home")
    assert not settings.restart_failed
    with Runtime(settings) as runtime:
        runtime.spark = spark
        with runtime.server(LoggedEvents()) as connectors:
            for name, asks in (("asks", "true"), ("asks-not", "false")):
                config = {
                    "connector.class": f"{failing_source.__name__}.Failing",
                    "go": str(go),
                    "topic": name,
                    "errors.restart.enable": asks,
                    "errors.restart.delay.ms": "200",
                    "errors.restart.delay.max.ms": "200",
                }
                connectors.create(name, config, "ann")

            def traces() -> dict[str, str | None]:
                return {
                    name: task.status.trace
                    for name in ("asks", "asks-not")
                    for task in connectors.view(name).tasks
                }

            until(lambda: "Restart 2 of 10" in (traces().get("asks") or ""), traces)
            go.touch()
            until(
                lambda: runtime.state.position(TaskId("asks", 0)) == failing_source.ALL, traces
            )
            [failed] = connectors.view("asks-not").tasks
            assert failed.status.state == "FAILED"
            assert "Restart" not in (failed.status.trace or "")
        del runtime.spark
