"""The page on how one batch moves names all that a batch passes, as it is measured."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.docs.walks import Walk

from headrace.runtime.app import Runtime
from headrace.settings import load_settings
from headrace.worker import BatchLoop
from headrace.worker.batch_loop import LAG_INTERVAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "walk-batch.md"
MOST_STEPS, MOST_MODULES = 120, 30
DEFINITION = """
name: walk
source: {{connector: file, path: {folder}/in/*.csv}}
transforms:
  - {{type: Cast, spec: "amount:float64"}}
sinks: [{{connector: delta, path: {folder}/out}}]
"""
ROWS = "id,amount\n1,1.5\n2,2\n"


@pytest.fixture(scope="module")
def walk(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """The second batch of a task: what is done once has been done."""
    folder = tmp_path_factory.mktemp("walk")
    (folder / "in").mkdir()
    file = folder / "walk.yaml"
    file.write_text(DEFINITION.format(folder=folder))
    with Runtime(load_settings(home=folder / "home")) as runtime:
        runtime.spark = spark
        loop = runtime.parts(runtime.definitions([file])[0]).loop
        walk = Walk()
        for number in range(2):
            (folder / "in" / f"{number}.csv").write_text(ROWS)
            time.sleep(LAG_INTERVAL.total_seconds())  # it is measured no more often
            walk = _walked(loop)
        del runtime.spark
    return walk


def _walked(loop: BatchLoop) -> Walk:
    for _ in range(50):  # the folder is not listed at each step
        with Walk() as walk:
            done = loop.step()
        if done is not None:
            assert done.counts.written == 2
            return walk
        time.sleep(0.2)
    raise AssertionError(loop)


def test_the_page_names_each_module_and_each_step(walk: Walk) -> None:
    text = PAGE.read_text()
    missing = [module for module in sorted(walk.modules) if f"`{module}`" not in text]
    missing += [name for _, name in walk.steps if f"`{name}`" not in text]
    assert not missing


def test_the_page_names_no_step_that_is_not_taken(walk: Walk) -> None:
    section = PAGE.read_text().partition("## The walk")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([A-Z]\w+\.\w+|[a-z_]+)`", section))
    assert named <= {name for _, name in walk.callers}


def test_the_page_says_how_long_the_walk_is(walk: Walk) -> None:
    steps = len(walk.steps), len({module for module, _ in walk.steps})
    whole = len(walk.callers), len(walk.modules)
    text = PAGE.read_text()
    for figures, words in ((steps, "steps"), (whole, "functions")):
        said = re.search(rf"(\d+) {words} in (\d+) modules", text)
        assert said is not None
        for measured, most in zip(figures, map(int, said.groups()), strict=True):
            # Whoever makes the walk longer has a layer to take out.
            assert 0.9 * most <= measured <= most
    assert steps[0] <= MOST_STEPS
    assert steps[1] <= MOST_MODULES
