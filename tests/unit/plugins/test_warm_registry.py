"""Plugins that are loaded before anybody asks for them."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from headrace.model import PluginNotFoundError
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


def install(folder: Path, module: str) -> None:
    (folder / f"{module}.py").write_text(SOURCE)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[headrace.sources]\n{module} = {module}:Warm\n")


def test_a_plugin_that_was_asked_for_before_it_was_installed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.plugins.registry._RELOAD_SECONDS", 0)
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    for ask in (registry.connector_kind, registry.source, registry.find):
        with pytest.raises(PluginNotFoundError):
            ask("late_source")
    install(tmp_path, "late_source")
    assert registry.connector_kind("late_source") is PluginKind.SOURCE
    assert registry.source("late_source").__name__ == "Warm"
    assert [each.name for each in registry.find("late_source.Warm")] == ["late_source"]


def test_names_that_nobody_knows_make_it_look_now_and_then_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry, looks = Registry(), []
    monkeypatch.setattr(registry, "reload", lambda: looks.append(1))
    for number in range(20):
        with pytest.raises(PluginNotFoundError):
            registry.source(f"unknown{number}")
    assert len(looks) == 1
