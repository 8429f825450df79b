"""The SDK's wheel is enough to write a plugin against and to test it: the how-to's own."""

import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "write-a-connector.md"
PROJECT = ROOT / "packages" / "headrace-sdk"
_FILE = re.compile(r"^```python title=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = """
import sys
sys.path[:0] = sys.argv[1:]
import pytest
failed = pytest.main(["-q", "-p", "no:cacheprovider", "test_quick.py"])
there = {"pyspark", "fastapi", "sqlalchemy", "headrace.runtime"} & set(sys.modules)
sys.exit(int(failed) or len(there))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (found,) = folder.glob("headrace_sdk-*.whl")
    return found


def test_headrace_comes_without_the_sdk_and_asks_for_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (whole,) = tmp_path.glob("headrace-*.whl")
    names = zipfile.ZipFile(whole).namelist()
    assert "headrace/runtime/app.py" in names
    assert not [each for each in names if each.startswith("headrace/sdk/")]
    version = whole.name.split("-")[1]
    assert f"headrace-sdk=={version}" in {str(each) for each in _requirements(whole)}


def _requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return [Requirement(each[15:]) for each in lines if each.startswith("Requires-Dist: ")]


def _link(requirement: Requirement, site: Path, seen: set[str]) -> None:
    """Put a package that is installed here, with what it needs, into a folder of packages."""
    name = requirement.name
    if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
        return
    seen.add(name)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    for top in {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(found.locate_file(top))))
    for each in found.requires or ():
        _link(Requirement(each), site, seen)


def test_the_wheel_needs_little(wheel: Path) -> None:
    needed = [each for each in _requirements(wheel) if each.marker is None]
    names = {each.name for each in needed}
    assert names == {"lazy-loader", "pyarrow", "typing-extensions"}


def test_a_plugin_is_written_and_tested_with_the_wheel_alone(
    wheel: Path, tmp_path: Path
) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    site.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    seen: set[str] = set()
    for each in [*_requirements(wheel), Requirement("pytest")]:
        _link(each, site, seen)
    for name, text in _FILE.findall(PAGE.read_text()):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUN, str(project), str(site)],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_the_sink_of_the_page_is_short() -> None:
    files = dict(_FILE.findall(PAGE.read_text()))
    assert len(files["acme/sink.py"].splitlines()) <= 60
