"""``headrace verify``: what cannot be compared is told before Spark starts."""

from pathlib import Path

import pytest

from headrace.cli import main

SINK = "name: write\ntopics: [t]\nsink: {{connector: delta, path: {folder}/table}}\n"
SOURCE = "name: read\ntopic: t\nsource: {{connector: datagen, rows: 3}}\n"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        (SINK, [], "A topic may hold several records per row"),
        (SOURCE, [], "read only feeds a topic"),
        (f"{SOURCE}---\n{SINK}", ["--connector", "other"], "There is no connector 'other'"),
        (SINK, ["--delete-extra"], "--delete-extra needs --repair"),
    ],
)
def test_what_cannot_be_compared_ends_with_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    options: list[str],
    told: str,
) -> None:
    file = tmp_path / "copy.yaml"
    file.write_text(text.format(folder=tmp_path))
    assert main(["verify", str(file), *options]) == 2
    assert told in capsys.readouterr().err
