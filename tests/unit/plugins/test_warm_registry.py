"""Plugins that are loaded before anybody asks for them."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from headrace.plugins import PluginKind, Registry

SOURCE = """
from headrace.sdk import SourceConnector
class Warm(SourceConnector):
    pass
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of two plugins: one that cannot be imported, and one that can."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {
        "warm_broken": "raise ValueError(__name__)",
        "warm_source": SOURCE,
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    made = Registry()
    group = PluginKind.SOURCE.group
    none: dict[PluginKind, dict[str, EntryPoint]] = {kind: {} for kind in PluginKind}
    made._entries = none | {
        PluginKind.SOURCE: {
            "a": EntryPoint("a", "warm_broken:Warm", group),
            "b": EntryPoint("b", "warm_source:Warm", group),
        }
    }
    return made


def test_all_plugins_are_loaded_but_for_those_that_cannot_be(registry: Registry) -> None:
    assert "warm_source" not in sys.modules
    registry.warm()
    assert "warm_source" in sys.modules
    assert "warm_broken" not in sys.modules


def test_a_plugin_that_cannot_be_loaded_hides_no_other(registry: Registry) -> None:
    found = registry.source("warm_source.Warm")
    assert found.__name__ == "Warm"
