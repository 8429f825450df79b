"""What the URL of a database may hold, and what it may not."""

import pytest

from headrace.sdk import ConfigError
from headrace.sdk.connector import Verdict
from headrace_plugins.connectors.jdbc.sink import JdbcSink
from headrace_plugins.connectors.jdbc.source import JdbcSource
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.postgresql import Postgresql


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@h/d",
        "postgresql://h/d;password=hunter2",
        "postgresql://h/d?password=hunter2",
        "postgresql://h/d?scram_client_key=hunter2",
        "postgresql://h/d?options=password%3Dhunter2",
        "mysql://u:hunter2@h/d",
        "jdbc:oracle:thin:scott/hunter2@//h:1521/x",
        "jdbc:trino://bob:hunter2@h:1/c",
        "jdbc:snowflake://h/?accessToken=hunter2",
        "jdbc:sqlserver://h;databaseName=d;password=hunter2",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="contains a password") as error:
        address_of(url)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "option", ["hostaddr", "passfile", "service", "servicefile", "sslkeylogfile", "host", "x"]
)
def test_an_option_that_leads_elsewhere_than_the_url_says_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=f"Unsupported option '{option}'"):
        address_of(f"postgresql://h/d?{option}=/etc/passwd")


def test_the_options_of_tls_and_time_limits_are_taken() -> None:
    address = address_of("postgresql://h/d?sslmode=verify-full&connect_timeout=3")
    assert address.options == {"sslmode": "verify-full", "connect_timeout": "3"}


def test_several_servers_of_postgresql_are_tried_in_their_order() -> None:
    address = address_of("jdbc:postgresql://u@h1:1,h2,[::1]:3/d?target_session_attrs=primary")
    assert address.servers == (("h1", 1), ("h2", 5432), ("::1", 3))
    assert (address.user, address.database) == ("u", "d")
    assert address.title == "postgresql://h1:1,h2:5432,::1:3/d"
    assert Postgresql(address).parameters["host"] == "h1,h2,::1"
    assert Postgresql(address).parameters["port"] == "1,5432,3"
    for bad in ("postgresql://h1,h2:x/d", "mysql://h1,h2/d"):
        with pytest.raises(ConfigError):
            address_of(bad)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://[bad/d",
        "postgresql://h:port/d",
        "postgresql://h:99999/d",
        "mysql://h:-1/d",
    ],
)
def test_what_is_no_url_is_an_error_of_its_key(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        address_of(url)
    assert error.value.field == "connection.url"


@pytest.mark.parametrize("hosts", ["", "127.0.0.1:1,", ",127.0.0.1:1", "h,,h"])
def test_any_server_without_a_name_is_on_this_machine(hosts: str) -> None:
    key = JdbcSource.config_def().keys["connection.url"]
    assert key.paths is not None
    assert key.paths(f"postgresql://{hosts}/d") == ["/var/run/postgresql"]
    assert key.paths("postgresql://h,127.0.0.1:1/d") == []


@pytest.mark.parametrize("connector", [JdbcSource, JdbcSink])
def test_a_doctor_without_spark_says_that_it_cannot_look(
    connector: type[JdbcSource | JdbcSink],
) -> None:
    props = {
        "connection.url": "jdbc:h2:mem:x",
        "driver.coordinates": "com.h2database:h2:2.3.232",
    }
    [finding] = connector.examine(connector.config_def().parse(props))
    assert finding.verdict is Verdict.WARNING
