"""The page on how one batch moves names all that a batch passes, as it is measured."""

import ast
import re
import sys
import time
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import pytest

import headrace
from headrace.runtime.app import Runtime
from headrace.settings import load_settings
from headrace.worker import BatchLoop
from headrace.worker.loop import LAG_INTERVAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SRC = Path(headrace.__file__).parents[1]
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "walk-batch.md"
WORDS = ("headrace/sdk/", "headrace/model/")
"""Where the values are defined that steps hand to each other."""
MOST_STEPS = 120
DEFINITION = """
name: walk
source: {{connector: file, path: {folder}/in/*.csv}}
transforms:
  - {{type: Cast, spec: "amount:float64"}}
sinks: [{{connector: delta, path: {folder}/out}}]
"""
ROWS = "id,amount\n1,1.5\n2,2\n"


class Walk:
    """Notes which functions of src are called in this thread, in order, and from where.

    Functions without a name and those within others belong to whoever holds them, and
    properties are values.
    """

    def __init__(self) -> None:
        self.callers: dict[tuple[str, str], set[str]] = defaultdict(set)

    def __enter__(self) -> Self:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    @property
    def modules(self) -> set[str]:
        return {module for module, _ in self.callers}

    @property
    def steps(self) -> dict[tuple[str, str], None]:
        """The functions that another module calls, in the order of their first calls."""
        return {
            key: None
            for key, callers in self.callers.items()
            if callers - {key[0]} and not key[0].startswith(WORDS)
        }

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        module, name = _module(code.co_filename), code.co_qualname
        if event != "call" or module is None or "<" in name or name in _properties(module):
            return
        caller = frame.f_back
        while caller is not None and _module(caller.f_code.co_filename) is None:
            caller = caller.f_back
        by = None if caller is None else _module(caller.f_code.co_filename)
        self.callers[module, name].add(by or "")


@cache
def _module(file: str) -> str | None:
    path = Path(file)
    return path.relative_to(SRC).as_posix() if path.is_relative_to(SRC) else None


@cache
def _properties(module: str) -> set[str]:
    tree = ast.parse((SRC / module).read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        f"{each.name}.{node.name}"
        for each in classes
        for node in each.body
        if isinstance(node, ast.FunctionDef)
        and any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


@pytest.fixture(scope="module")
def walk(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """The second batch of a task: what is done once has been done."""
    folder = tmp_path_factory.mktemp("walk")
    (folder / "in").mkdir()
    file = folder / "walk.yaml"
    file.write_text(DEFINITION.format(folder=folder))
    with Runtime(load_settings(home=folder / "home")) as runtime:
        runtime.spark = spark
        loop = runtime.loop(runtime.definitions([file])[0])
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
