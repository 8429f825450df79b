"""A connector's name, whatever it holds, leads to no place outside the home folder."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.cli.progress import Scoreboard
from headrace.model import TaskId
from headrace.runtime.app import Runtime

pytestmark = pytest.mark.spark
NAME = "../../../evil, '; DROP TABLE tasks"


def test_a_name_of_dots_slashes_and_quotes_stays_at_home(
    runtime: Runtime, tmp_path: Path
) -> None:
    file = tmp_path / "definition.yaml"
    file.write_text(
        f'name: "{NAME}"\n'
        "source: {connector: datagen, rows: 20}\n"
        "transforms: [{type: ValueToKey, fields: id}, {type: Deduplicate}]\n"
        f"sinks: [{{connector: file, path: {tmp_path / 'out'}, format: json}}]\n"
    )
    definitions = runtime.definitions([file])
    outcome = runtime.run(definitions, Scoreboard(lambda: 0.0), once=True)
    assert not outcome.errors
    assert runtime.state.totals(TaskId(NAME, 0)).read == 20
    assert {path.name for path in tmp_path.iterdir()} == {"definition.yaml", "home", "out"}
    assert not list(tmp_path.parent.glob("evil*"))
    kept = [path.name for path in (tmp_path / "home" / "state").iterdir()]
    assert all(name.startswith("..%2F..%2F..%2Fevil") for name in kept)
    assert kept


@pytest.mark.parametrize("hostile", [NAME, "{elsewhere}/absolute", "..", "a/b c%20d~e"])
def test_a_hostile_name_stages_inside_topics_and_tables(
    runtime: Runtime, tmp_path: Path, hostile: str
) -> None:
    name = hostile.format(elsewhere=tmp_path.parent)
    before = set(tmp_path.parent.iterdir())
    table, topic = tmp_path / "table", tmp_path / "home" / "topics" / "made"
    source, sink = tmp_path / "source.yaml", tmp_path / "sink.yaml"
    source.write_text(
        f'name: "{name}"\nsource: {{connector: datagen, rows: 20}}\ntopics: [made]\n'
    )
    sink.write_text(
        f'name: "{name} 2"\ntopics: [made]\nsinks: [{{connector: delta, path: {table}}}]\n'
    )
    for file in (source, sink):
        definitions = runtime.definitions([file])
        outcome = runtime.run(definitions, Scoreboard(lambda: 0.0), once=True)
        assert not outcome.errors
    for path in (table, topic):
        assert DeltaTable(path).to_pyarrow_table().num_rows == 20
    assert set(tmp_path.parent.iterdir()) == before
