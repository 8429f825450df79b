"""The rules of the house that no other tool checks."""

import ast
import importlib
import pkgutil
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import pytest
from tests.rarely import RARELY, TESTS

import headrace
import headrace_plugins
import headrace_registry
from headrace.sdk.errors import HeadraceError

ROOT = Path(__file__).parents[2]
MAX_LINES = 700
FOLDERS = ("src", "tests", "benchmarks", "examples", "scripts")
VAGUE = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}
# In two parts, or this file would break the rule.
REGISTRIES = tuple(
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("repo1.maven", "org"),
        ("repo.maven", "apache"),
        ("repos.spark-packages", "org"),
        ("registry.npmjs", "org"),
        ("deb.debian", "org"),
    ]
)


def modules() -> list[Path]:
    return [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def imported(package: ModuleType) -> Iterator[ModuleType]:
    yield package
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith(".__main__"):
            yield importlib.import_module(found.name)


def subclasses(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def connectors() -> list[EntryPoint]:
    found = [*entry_points(group="headrace.sources"), *entry_points(group="headrace.sinks")]
    return [entry for entry in found if entry.value.startswith("headrace_plugins.")]


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    lengths = {name_of(file): len(file.read_text().splitlines()) for file in modules()}
    assert {name: n for name, n in lengths.items() if n >= MAX_LINES} == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [name_of(file) for file in modules() if file.stem.strip("_") in VAGUE] == []


def test_every_module_says_what_it_is() -> None:
    silent = [file for file in modules() if not ast.get_docstring(ast.parse(file.read_text()))]
    assert [name_of(file) for file in silent] == []


def test_every_error_has_a_code_of_its_own() -> None:
    packages = (headrace, headrace_plugins, headrace_registry)
    for package in packages:
        assert list(imported(package))
    kinds: set[type[HeadraceError]] = {HeadraceError, *subclasses(HeadraceError)}
    names = {package.__name__ for package in packages}
    by_code = defaultdict(list)
    for kind in kinds:
        is_public = not kind.__name__.startswith("_")
        if is_public and kind.__module__.partition(".")[0] in names:
            by_code[kind.code].append(kind.__name__)
    assert {code: names for code, names in by_code.items() if len(names) > 1} == {}


@pytest.mark.parametrize("entry", connectors(), ids=lambda entry: f"{entry.group}.{entry.name}")
def test_every_connector_runs_the_acceptance_kit(entry: EntryPoint) -> None:
    class_name = entry.value.partition(":")[2]
    tests = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]
    assert any("headrace.sdk.testing" in text and class_name in text for text in tests), (
        f"no test module uses headrace.sdk.testing on {class_name}"
    )


def test_every_plugin_that_is_announced_can_be_imported() -> None:
    groups = ("headrace.transforms", "headrace.predicates")
    others = [entry for group in groups for entry in entry_points(group=group)]
    assert all(isinstance(entry.load(), type) for entry in [*connectors(), *others])


def test_no_file_names_a_package_registry() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git clone")
    listed = subprocess.run(
        [git, "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    files = [ROOT / name for name in listed if (ROOT / name).is_file()]
    naming = [
        name_of(file)
        for file in files
        if any(host in file.read_text(errors="replace") for host in REGISTRIES)
    ]
    assert naming == []


def test_what_is_tested_rarely_is_there() -> None:
    assert [name for name in RARELY if not (TESTS / name).is_file()] == []
