"""A source whose next rows have to be waited for."""

from pathlib import Path

import pytest

from headrace.cli.progress import Scoreboard
from headrace.model import TaskId
from headrace.runtime.app import Runtime

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("gear", ["frame", "split", "capture"])
def test_a_source_that_waits_for_its_next_rows_has_not_ended(
    gear: str, runtime: Runtime, tmp_path: Path
) -> None:
    config = f"connector: datagen, gear: {gear}, rows: 3, rate: 1"
    file = tmp_path / "slow.yaml"
    file.write_text(f"{{name: slow, source: {{{config}}}, topic: t}}")
    outcome = runtime.run(runtime.definitions([file]), Scoreboard(lambda: 0.0), once=False)
    assert not outcome.errors
    assert runtime.state.totals(TaskId("slow", 0)).read == 3
