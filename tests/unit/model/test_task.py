"""Tasks and their names."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TaskId, file_name


@pytest.mark.parametrize("name", ["orders", "Orders of été", "a.b-c_d, e"])
def test_an_ordinary_name_is_its_own_file_name(name: str) -> None:
    assert TaskId(name, 0).file_name == f"{name}-0"


@given(st.text(), st.text())
def test_a_file_name_leads_nowhere_and_is_of_one_text(one: str, other: str) -> None:
    name = file_name(one)
    assert os.path.normpath(Path("/home") / name) == f"/home/{name}" or not one
    assert "\x00" not in name
    assert (name == file_name(other)) == (one == other)
