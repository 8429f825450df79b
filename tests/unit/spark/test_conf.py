"""How our Spark settings and the user's become one."""

import os
from collections.abc import Mapping
from pathlib import Path

from headrace.settings import load_settings
from headrace.spark.conf import spark_conf

JARS = [Path("/cache/storage.jar"), Path("/cache/avro.jar")]


def conf(
    users: Mapping[str, str] | None = None,
    *,
    master: str = "local[2]",
    home: str = "/home",
    archive: Path | None = None,
    short_lived: bool = False,
    one_compiler: bool = False,
) -> dict[str, str]:
    return spark_conf(
        load_settings(home=home, master=master, spark_conf=users or {}),
        app_name="test",
        jars=JARS,
        archive=archive,
        short_lived=short_lived,
        one_compiler=one_compiler,
    )


def test_a_setting_of_the_user_wins() -> None:
    assert conf()["spark.scheduler.mode"] == "FAIR"
    assert conf({"spark.scheduler.mode": "FIFO"})["spark.scheduler.mode"] == "FIFO"


def test_lists_of_the_user_are_added_to_ours() -> None:
    merged = conf({"spark.sql.extensions": "a.B", "spark.driver.extraClassPath": "/a.jar"})
    assert merged["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,a.B"
    path = ["/cache/storage.jar", "/cache/avro.jar", "/a.jar"]
    assert merged["spark.driver.extraClassPath"] == os.pathsep.join(path)


def test_java_options_of_the_user_are_kept_beside_ours() -> None:
    merged = conf({"spark.driver.extraJavaOptions": "-Da=b"})
    assert merged["spark.driver.extraJavaOptions"] == "-Da=b"
    assert "log4j2.configurationFile" in merged["spark.driver.defaultJavaOptions"]


def test_a_local_driver_listens_to_this_machine_only() -> None:
    assert conf()["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in conf(master="spark://host:7077")


def test_other_users_of_this_machine_cannot_use_a_local_drivers_ports() -> None:
    assert conf()["spark.authenticate"] == "true"
    assert "spark.authenticate" not in conf(master="spark://host:7077")  # it needs a secret


def test_a_cluster_is_given_the_jars_and_a_local_spark_needs_no_copy() -> None:
    assert conf(master="yarn")["spark.jars"] == "/cache/storage.jar,/cache/avro.jar"
    assert "spark.jars" not in conf()


def test_workers_elsewhere_are_started_by_sparks_own_daemon() -> None:
    """Their interpreter may be another, which has no module of ours."""
    module = "spark.python.daemon.module"
    assert conf()[module] == "headrace.python_daemon"
    assert module not in conf(master="spark://host:7077")
    assert module not in conf(master="local-cluster[1,1,1024]")
    assert conf({module: "mine"})[module] == "mine"


def test_the_number_of_shuffle_partitions_follows_the_local_threads() -> None:
    assert conf(master="local[3]")["spark.sql.shuffle.partitions"] == "6"
    cores = os.cpu_count() or 1
    assert conf(master="local[*]")["spark.sql.shuffle.partitions"] == str(2 * cores)
    assert "spark.sql.shuffle.partitions" not in conf(master="local-cluster[2,1,1024]")


def test_a_path_with_a_space_stays_one_java_option() -> None:
    options = conf(home="/my home")["spark.driver.defaultJavaOptions"]
    assert '"-Dheadrace.log=/my home/logs/spark.log"' in options


def test_the_archive_is_used_when_there_is_one() -> None:
    options = conf(archive=Path("/cache/a.jsa"))["spark.driver.defaultJavaOptions"]
    assert "-XX:SharedArchiveFile=/cache/a.jsa" in options
    assert "SharedArchiveFile" not in conf()["spark.driver.defaultJavaOptions"]


def test_only_a_command_that_copies_nothing_forgoes_the_second_compiler() -> None:
    quick = conf(short_lived=True, one_compiler=True)["spark.driver.defaultJavaOptions"]
    assert "-XX:TieredStopAtLevel=1" in quick
    assert "-XX:ReservedCodeCacheSize=240m" in quick  # 48 MB otherwise, which Spark fills
    for short_lived in (False, True):
        options = conf(short_lived=short_lived)["spark.driver.defaultJavaOptions"]
        assert "TieredStopAtLevel" not in options
        assert "-XX:Tier4InvocationThreshold=" in options
        assert ("-XX:+UseParallelGC" in options) == short_lived
