"""Commands that other packages add."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from headrace.cli import app as root


@pytest.fixture
def _a_package_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    broken = EntryPoint("acme", "no_such_package.cli:app", "headrace.commands")
    monkeypatch.setattr(root, "entry_points", lambda group: [broken])
    root.whole_app.cache_clear()
    yield
    root.whole_app.cache_clear()


@pytest.mark.usefixtures("_a_package_that_is_broken")
def test_a_package_that_is_broken_takes_no_other_command_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert root.main(["version"]) == 0
    shown = capsys.readouterr()
    assert "headrace" in shown.out
    assert "command acme cannot be loaded: ModuleNotFoundError" in shown.err
