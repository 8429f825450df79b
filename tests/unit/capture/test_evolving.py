"""Plain values follow the policy too, and what does not fit is rejected by itself."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.task_doubles import Schemas, copying

from headrace.capture import Targets
from headrace.capture.capture_thread import Gathering
from headrace.capture.staging import Stager
from headrace.model import SchemaChangeError
from headrace.sdk import Mark, Position, Record
from headrace.sdk.location import Location
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling


class Host:
    """A capture's appends."""

    def __init__(
        self, folder: Path, policy: EvolutionPolicy, *, tolerant: bool = False
    ) -> None:
        self.folder, self.number = folder, 0
        self.targets = Targets(Location.of(folder), "t", "copy")
        spec = copying(folder, evolution=policy, tolerant=tolerant)
        self.stager = Stager(spec, self.targets, Schemas())

    def append(self, *values: Any) -> int:
        """Append plain values; return how many were rejected."""
        gathering = Gathering(Position())
        gathering.add([Record("t", value) for value in values])
        staged = self.stager.stage(gathering)
        assert staged.counts.balanced
        self.number += 1
        if staged.additions:
            self.targets.commit(staged.additions, Mark("copy", self.number, 1), staged.counts)
        return staged.counts.rejected

    def values(self) -> list[dict[str, Any]]:
        table = DeltaTable(self.folder / "t").to_pyarrow_table().sort_by("timestamp")
        return sorted((row["value"] for row in table.to_pylist()), key=lambda v: int(v["id"]))


def of(kind: ChangeKind, handling: Handling, **renames: str) -> EvolutionPolicy:
    return EvolutionPolicy(handlings={kind: handling}, renames=renames)


def test_another_type_goes_beside_the_field_again_and_again(tmp_path: Path) -> None:
    host = Host(tmp_path, of(ChangeKind.RETYPE, Handling.LENIENT))
    host.append({"id": 1, "a": 5})
    host.append({"id": 2, "a": "x"}, {"id": 3, "a": 6})
    host.append({"id": 4, "a": 7}, {"id": 5, "a": "y"}, {"id": 6, "b": True})
    assert [(v["a"], v["a__string"], v["b"]) for v in host.values()] == [
        (5, None, None),
        (None, "x", None),
        (6, None, None),
        (7, None, None),
        (None, "y", None),
        (None, None, True),
    ]


def test_only_values_that_do_not_fit_an_ignored_change_are_rejected(tmp_path: Path) -> None:
    host = Host(tmp_path, of(ChangeKind.RETYPE, Handling.IGNORE), tolerant=True)
    host.append({"id": 1, "a": 5})
    assert host.append({"id": 2, "a": "six"}, {"id": 3, "a": "6"}, {"id": 4, "a": 6.5}) == 2
    assert host.append({"id": 5, "a": 2**60 + 1}) == 0
    assert [(v["id"], v["a"]) for v in host.values()] == [(1, 5), (3, 6), (5, 2**60 + 1)]


def test_a_new_field_is_left_out_for_good_where_that_is_asked_for(tmp_path: Path) -> None:
    host = Host(tmp_path, of(ChangeKind.ADD, Handling.IGNORE))
    host.append({"id": 1})
    host.append({"id": 2, "c": 1}, {"id": 3})
    assert host.values() == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_renamed_field_goes_on_under_its_old_name(tmp_path: Path) -> None:
    host = Host(tmp_path, of(ChangeKind.RENAME, Handling.IGNORE, b="new"))
    host.append({"id": 1, "b": "x"})
    host.append({"id": 2, "new": "y"})
    host.append({"id": 3, "new": "z"}, {"id": 4})
    assert [v["b"] for v in host.values()] == ["x", "y", "z", None]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(ChangeKind.ADD, {"id": 2, "a": 1, "c": 1}), (ChangeKind.RETYPE, {"id": 2, "a": "x"})],
)
def test_a_rejected_change_stops_and_a_missing_field_is_none(
    tmp_path: Path, kind: ChangeKind, value: dict[str, Any]
) -> None:
    host = Host(tmp_path, EvolutionPolicy(Handling.REJECT))
    host.append({"id": 1, "a": 1})
    host.append({"id": 7})
    with pytest.raises(SchemaChangeError, match=str(kind)):
        host.append(value)
    assert len(host.values()) == 2
