"""The reference pages say what the code says."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
REMEDY = "run: .venv/bin/python scripts/reference.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = ROOT / "scripts" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_pages_are_what_the_code_says(generator: ModuleType) -> None:
    made = generator.pages()
    committed = {path.name: path.read_text() for path in generator.FOLDER.glob("*.md")}
    assert sorted(committed) == sorted(made), REMEDY
    stale = [name for name, text in made.items() if committed[name] != text]
    assert stale == [], REMEDY


def test_every_plugin_key_is_explained(generator: ModuleType) -> None:
    page = generator.plugins()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    unexplained = [row for row in rows if not row.rstrip(" |").rpartition("|")[2].strip()]
    assert rows
    assert unexplained == []


PLACES = ["", "src", "src/headrace", "src/headrace/rest", "docs", "tests"]


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "explanation").glob("*.md")), ids=lambda page: page.stem
)
def test_a_page_names_no_module_that_is_not_there(page: Path) -> None:
    named = set(re.findall(r"`([a-z_0-9/]+\.py)`", page.read_text()))
    assert not {
        each for each in named if not any((ROOT / place / each).is_file() for place in PLACES)
    }
