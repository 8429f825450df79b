"""JDBC drivers that are loaded into a session which runs already."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.jdbc_drivers import H2, OTHER_H2, SQLITE

from headrace.cli.progress import Scoreboard
from headrace.sdk import ConfigError
from headrace.sdk.errors import SetupError
from headrace.sdk.jdbc import JdbcDriver, LoadedDriver, load_driver, loads_drivers
from headrace.settings import Settings, load_settings
from headrace.spark import Drivers

pytestmark = pytest.mark.spark
Load = Callable[[JdbcDriver, str], LoadedDriver]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def load(spark: SparkSession, session_settings: Settings) -> Load:
    return Drivers(session_settings, lambda: spark).load


def table(spark: SparkSession, url: str, driver: LoadedDriver) -> dict[str, Any]:
    """Write three rows through Spark, as a new table where the database is H2; then read it."""
    options = {"driver": driver.class_name, "url": url, "dbtable": "things"}
    rows = spark.range(3).selectExpr("CAST(id AS INT) AS number", "CONCAT('x', id) AS name")
    rows.write.format("jdbc").options(**options).mode("append").save()
    return options


def count(spark: SparkSession, options: dict[str, Any]) -> int:
    return spark.read.format("jdbc").options(**options).load().where("number < 2").count()


def test_a_driver_that_comes_late_reads_and_writes_in_every_thread_and_session(
    spark: SparkSession, load: Load
) -> None:
    url = "jdbc:h2:mem:late;DB_CLOSE_DELAY=-1"
    found: list[int] = []
    options: dict[str, Any] = {}
    runs, loaded = threading.Event(), threading.Event()

    def read() -> None:
        spark.range(1).count()  # the thread has its place in the JVM before the driver comes
        runs.set()
        loaded.wait()
        found.append(count(spark, options))

    thread = threading.Thread(target=read)
    thread.start()
    runs.wait()
    driver = load(H2, url)
    assert driver == LoadedDriver(spark, "org.h2.Driver")
    options |= table(spark, url, driver)
    loaded.set()
    thread.join()
    assert found == [2]
    assert count(spark.newSession(), options) == 2
    assert load(H2, url) == driver


def test_drivers_of_two_databases_are_used_side_by_side(
    spark: SparkSession, load: Load, tmp_path: Path
) -> None:
    h2, sqlite = "jdbc:h2:mem:beside;DB_CLOSE_DELAY=-1", f"jdbc:sqlite:{tmp_path}/beside.db"
    from_h2 = table(spark, h2, load(H2, h2))
    driver = load(SQLITE, sqlite)
    made = spark.sparkContext._jvm.java.sql.DriverManager.getConnection(sqlite)  # type: ignore[union-attr]
    made.createStatement().execute("CREATE TABLE things (number INTEGER, name TEXT)")
    made.close()
    assert (count(spark, from_h2), count(spark, table(spark, sqlite, driver))) == (2, 2)


def test_another_version_of_a_driver_in_use_is_refused_with_what_is_used(load: Load) -> None:
    load(H2, "jdbc:h2:mem:x")
    with pytest.raises(
        ConfigError, match=r"org\.h2\.Driver from .*h2_2\.3\.232\.jar"
    ) as raised:
        load(OTHER_H2, "jdbc:h2:mem:x")
    assert raised.value.field == "driver.coordinates"
    assert "restart" in raised.value.fix


def test_a_jar_on_the_disk_is_loaded_even_where_spark_brings_it(load: Load) -> None:
    [derby] = (Path(pyspark.__file__).parent / "jars").glob("derby-10*.jar")
    driver = load(JdbcDriver(path=str(derby)), "jdbc:derby:memory:x")
    assert driver.class_name.startswith("org.apache.derby.")


def test_a_jar_on_the_disk_must_be_there_and_be_the_one_and_have_a_driver(
    load: Load, tmp_path: Path
) -> None:
    jar = tmp_path / "driver.jar"
    with pytest.raises(ConfigError, match=r"driver\.jar does not exist"):
        load(JdbcDriver(path=str(jar)), "jdbc:x:")
    jar.write_bytes(b"no jar")
    with pytest.raises(ConfigError, match=r"does not match driver\.sha256") as raised:
        load(JdbcDriver(path=str(jar), sha256=("0" * 64,)), "jdbc:x:")
    assert raised.value.field == "driver.sha256"
    with pytest.raises(ConfigError, match="is not a JDBC driver"):
        load(JdbcDriver(path=str(jar)), "jdbc:x:")


def test_a_url_of_another_database_is_refused_and_not_shown(load: Load) -> None:
    with pytest.raises(ConfigError, match="does not accept the connector's URL") as raised:
        load(H2, "jdbc:other:x;password=hunter2")
    assert "hunter2" not in str(raised.value)


def test_wrong_coordinates_are_told_with_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    ivy = tmp_path / "ivysettings.xml"
    ivy.write_text(
        "<ivysettings><settings defaultResolver='none'/><resolvers><filesystem name='none'>"
        f"<artifact pattern='{tmp_path}/[artifact]-[revision].[ext]'/></filesystem>"
        "</resolvers></ivysettings>"
    )
    settings = load_settings(cache=tmp_path, spark_conf={"spark.jars.ivySettings": str(ivy)})
    with pytest.raises(ConfigError, match=r"Could not fetch org\.example:none:1") as raised:
        Drivers(settings, lambda: spark).load(
            JdbcDriver(coordinates=("org.example:none:1",)), "jdbc:none:"
        )
    assert raised.value.field == "driver.coordinates"
    assert "coordinates" in raised.value.fix


def test_a_connector_names_its_driver_and_runs_in_the_session_that_is_open(
    runtime, spark: SparkSession, load: Load, tmp_path: Path
) -> None:
    url = "jdbc:h2:mem:run;DB_CLOSE_DELAY=-1"
    table(spark, url, load(H2, url))
    file = tmp_path / "copy.yaml"
    file.write_text(
        "name: copy\nsource:\n  connector: tests.integration.jdbc_source.JdbcTable\n"
        f"  url: {url}\n  table: things\n  driver.coordinates: {H2.coordinates[0]}\n"
        f"  driver.sha256: {H2.sha256[0]}\n"
        f"sinks:\n  - connector: file\n    path: {tmp_path}/out\n    format: json\n"
    )
    outcome = runtime.run(runtime.definitions([file]), Scoreboard(lambda: 0.0), once=True)
    assert not outcome.errors
    [part] = (tmp_path / "out").rglob("part-*.json")
    assert len(part.read_text().splitlines()) == 3


def test_where_no_spark_may_run_no_driver_is_loaded() -> None:
    assert not loads_drivers()
    with pytest.raises(SetupError, match="need Spark"):
        load_driver(H2, "jdbc:h2:mem:x")


PROCESSES = """
import sys
from pathlib import Path
from tests.integration.spark.test_drivers import count, table
from tests.jdbc_drivers import H2
from headrace.settings import load_settings
from headrace.spark import Drivers, close_session, open_session

url = f"jdbc:h2:{sys.argv[1]}/late;AUTO_SERVER=TRUE"
for master in ("local-cluster[1,1,600]", "local[1]"):
    settings = load_settings(
        master=master, driver_memory="600m", spark_conf={"spark.executor.memory": "600m"}
    )
    spark = open_session(settings, short_lived=True)
    spark.range(1).count()  # the executor runs before the driver comes
    driver = Drivers(settings, lambda: spark).load(H2, url)
    print(count(spark, table(spark, url, driver)))
    close_session()
"""


def test_executors_in_other_processes_and_the_session_after_get_the_driver(
    tmp_path: Path,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROCESSES, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.split() == ["2", "4"], ended.stderr
