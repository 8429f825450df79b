"""A new package has a name that Python can import, and hides no other module."""

import pytest

from headrace.cli.new_plugin import Kind, write_package
from headrace.sdk import ConfigError


@pytest.mark.parametrize("name", ["json", "headrace", "pyarrow", "class", "Acme", "a_b"])
def test_a_name_that_is_taken_or_is_none_is_refused(name, tmp_path):
    with pytest.raises(ConfigError) as refused:
        write_package(Kind.SOURCE, name, tmp_path / "new")
    assert refused.value.field == "NAME"
    assert not (tmp_path / "new").exists()
