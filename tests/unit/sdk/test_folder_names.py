"""A text that becomes the name of a folder stays one folder, whatever it is."""

from pathlib import PurePath, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import Mark
from headrace.sdk.delta import staging_folder
from headrace.sdk.folders import folder_name

HOSTILE = ["../../../evil", "/absolute", "..", ".", "a/b", "a b", "100%", "~", "ä", "x" * 500]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_application_stages_below_its_table(text: str):
    folder = PurePosixPath(staging_folder(Mark(text, 1, 1)))
    assert folder.parts[0] == "data"
    assert len(folder.parts) == 3
    assert not {"..", "."} & set(folder.parts)
    assert all(len(part) < 200 for part in folder.parts)


@given(st.lists(st.text(min_size=1), min_size=2, max_size=5, unique=True))
def test_each_text_has_a_name_of_its_own(texts: list[str]):
    names = [folder_name(text) for text in texts]
    assert len(set(names)) == len(names)
    assert all(PurePath(name).parts == (name,) for name in names)


def test_ordinary_names_stay_as_they_are():
    assert folder_name("orders-3f2a-0") == "orders-3f2a-0"
