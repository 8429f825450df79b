"""Rows that move on after a backup of the store was put back."""

import shutil
from pathlib import Path

import pytest
from tests.unit.worker.scripts import Told

from headrace.runtime.app import Runtime
from headrace.settings import load_settings
from headrace.store import back_up

pytestmark = pytest.mark.spark
DEFINITION = """
name: {kind}
source:
  connector: file
  path: {folder}/in
  format: text
sink:
  connector: file
  format: {kind}
  path: {folder}/out
"""


@pytest.mark.parametrize("kind", ["json", "text"])
def test_no_row_is_lost_though_targets_hold_batches_that_the_backup_does_not_know(
    spark, tmp_path: Path, kind: str
) -> None:
    settings = load_settings(home=tmp_path / "home")
    definition = tmp_path / "definition.yaml"
    definition.write_text(DEFINITION.format(folder=tmp_path, kind=kind))
    (tmp_path / "in").mkdir()

    def move(line: str) -> None:
        (tmp_path / "in" / line).write_text(f"{line}\n")
        with Runtime(settings) as runtime:
            runtime.spark = spark
            [found] = runtime.definitions([definition])
            assert not runtime.run([found], Told(), once=True).errors
            del runtime.spark  # it is not the runtime's to close

    move("first")
    store, backup = tmp_path / "home" / "store.db", tmp_path / "backup.db"
    back_up(store, backup)
    move("second")
    for file in store.parent.glob("store.db*"):
        file.unlink()
    shutil.copy(backup, store)
    # Its number would be that of the second line's batch, with other rows.
    move("third")

    parts = (file.read_text() for file in (tmp_path / "out").glob("part-*"))
    found = "".join(parts)
    assert [found.count(line) for line in ("first", "second", "third")] == [1, 2, 1]
