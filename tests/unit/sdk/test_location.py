"""Locations: what a path or a URL stands for, and what is wrong with one."""

from pathlib import Path

import pytest

from headrace.sdk import ConfigError
from headrace.sdk.location import Location


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data/x", "/data/x"),
        ("/data//x/./y/", "/data/x/y"),
        ("file:///data/x", "/data/x"),
        ("file:/data/x", "/data/x"),
        ("FILE://localhost/data", "/data"),
        ("file:///a%20b/%C3%A9?#", "/a b/é?#"),
        ("/a%20b", "/a%20b"),
        ("c:/data", str(Path("c:/data").absolute())),
        ("x", str(Path("x").absolute())),
        ("~/x", str(Path("~/x").expanduser())),
        ("~x", str(Path("~x").absolute())),
    ],
)
def test_a_path_and_a_url_stand_for_a_file_of_this_machine(text: str, path: str) -> None:
    found = Location.of(text)
    assert (found.path, str(found), found.local) == (path, path, Path(path))


@pytest.mark.parametrize("text", ["s3://bucket/x", "hdfs://host:9000/x", "dbfs:/x"])
def test_an_unknown_scheme_names_those_that_work_and_the_key(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Location.of(text, field="topics_dir")
    assert caught.value.field == "topics_dir"
    assert caught.value.problem == (
        f"Unsupported scheme '{text.partition(':')[0]}' in {text}; "
        "expected a plain path or a URL that begins with file://."
    )
    assert "mount" in (caught.value.fix or "")


def test_a_url_that_lost_a_slash_names_a_host() -> None:
    with pytest.raises(ConfigError, match="names the host 'data'") as caught:
        Location.of("file://data/x")
    assert caught.value.fix == "Use file:///data/x for a path."


def test_a_place_is_put_together_and_taken_apart() -> None:
    place = Location.of("/data/a b") / "x/y.json"
    assert (place.name, place.parent.name) == ("y.json", "x")
    assert place.relative_to(Location.of("/data")) == "a b/x/y.json"
    assert place.is_below(Location.of("/data/a b"))
    assert not place.is_below(Location.of("/data/a"))
    assert place.url == "file:///data/a%20b/x/y.json"
    assert place.spark_path == "file:///data/a b/x/y.json"
    assert Location.of("/").parent == Location.of("/")


def test_a_place_that_climbs_is_below_no_folder() -> None:
    place = Location.of("/data/logs") / "../../etc/passwd"
    assert not place.is_below(Location.of("/data/logs"))
    assert not place.is_below(Location.of("/data"))


@pytest.mark.parametrize("text", ["/data/a\0b", "file:///data/a%00b"])
def test_a_path_holds_no_null_character(text: str) -> None:
    with pytest.raises(ConfigError, match="null character") as caught:
        Location.of(text, field="topics_dir")
    assert caught.value.field == "topics_dir"
