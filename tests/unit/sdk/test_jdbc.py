"""The keys by which configurations name JDBC drivers."""

import pytest

from headrace.sdk import ConfigErrors
from headrace.sdk.config import Meaning
from headrace.sdk.jdbc import DriverSettings, JdbcDriver

JAR = "com.h2database:h2:2.3.232"
HASH = "AB" * 32


def test_a_driver_is_named_by_coordinates_and_hashes() -> None:
    names = {"driver.coordinates": f"{JAR}, org.example:other:1", "driver.sha256": HASH}
    with pytest.raises(ConfigErrors, match="1 hashes for 2 jars"):
        DriverSettings.parsed(names)
    parsed = DriverSettings.parsed({**names, "driver.sha256": f"{HASH},{HASH}"})
    assert parsed.driver == JdbcDriver(
        coordinates=(JAR, "org.example:other:1"), sha256=(HASH.lower(), HASH.lower())
    )
    assert DriverSettings.parsed({}).driver == JdbcDriver()


def test_a_driver_is_named_by_a_path_instead() -> None:
    parsed = DriverSettings.parsed({"driver.path": "/opt/x.jar", "driver.sha256": HASH})
    assert parsed.driver == JdbcDriver(path="/opt/x.jar", sha256=(HASH.lower(),))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("driver.coordinates", "h2"),
        ("driver.coordinates", "com.h2database:h2"),
        ("driver.coordinates", "com.h2database:h2:../x"),
        ("driver.coordinates", "com.h2database:h2:1?transitive=true"),
        ("driver.coordinates", f"{JAR}:jdk8"),
        ("driver.path", "x.jar"),
        ("driver.path", JAR),
        ("driver.sha256", "abc"),
    ],
)
def test_the_form_of_each_key_is_checked_without_spark(key: str, value: str) -> None:
    with pytest.raises(ConfigErrors) as raised:
        DriverSettings.parsed({key: value})
    assert [error.field for error in raised.value.errors] == [key]
    assert raised.value.errors[0].fix


def test_coordinates_and_a_path_exclude_each_other() -> None:
    with pytest.raises(ConfigErrors, match=r"Both driver\.coordinates and driver\.path"):
        DriverSettings.parsed({"driver.coordinates": JAR, "driver.path": "/x.jar"})


def test_servers_are_asked_about_both() -> None:
    keys = DriverSettings.config_def().keys
    means = {name: keys[name].means for name in ("driver.coordinates", "driver.path")}
    assert set(means.values()) == {Meaning.DRIVER}
