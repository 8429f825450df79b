"""Every example runs as it stands, in an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from tests.postgresql_server import PostgresqlServer

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*.json")])


@pytest.mark.spark
@pytest.mark.usefixtures("quick_java")
@pytest.mark.timeout(900)
def test_all_examples_run_and_account_for_each_record(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            Path(sys.executable).with_name("headrace"),
            "run",
            "--once",
            "--json",
            *map(str, FILES),
        ],
        cwd=tmp_path,
        env=os.environ | {"HEADRACE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["state"] == "completed"
    for task in summary["tasks"]:
        assert task["read"] == 10_000
        assert task["read"] == task["written"] + task["filtered"] + task["rejected"]
    by_task = {task["task"]: task for task in summary["tasks"]}
    assert by_task["fan-out-0"]["filtered"] > 0
    assert by_task["bad-records-0"]["rejected"] > 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "customers",
        "dear_offers",
        "good",
        "offer",
        "orders",
        "orders_from_topic",
        "paid",
        "paid_parquet",
    ]


def test_there_are_examples_in_both_forms() -> None:
    assert {path.suffix for path in FILES} == {".yaml", ".json"}


def test_the_database_of_a_shop_has_keys_of_all_kinds(postgresql: PostgresqlServer) -> None:
    script = [sys.executable, str(EXAMPLES / "shop_database.py")]
    with postgresql.database() as url:
        subprocess.run(
            [*script, url, "--scale", "0.001"], check=True, stdout=subprocess.DEVNULL
        )
        with psycopg.connect(url) as connection:
            keys = connection.execute(
                "SELECT array_agg(DISTINCT type::text), count(*) FROM (SELECT c.oid,"
                " array_agg(format_type(atttypid, NULL)) FILTER (WHERE attnum = ANY(conkey))"
                " AS type FROM pg_class c JOIN pg_attribute ON attrelid = c.oid"
                " LEFT JOIN pg_constraint ON conrelid = c.oid AND contype = 'p'"
                " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace GROUP BY c.oid"
                ") AS tables"
            ).fetchone()
            filled = connection.execute(
                "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND reltuples > 0"
                " AND relnamespace = 'public'::regnamespace"
            ).fetchone()
    assert keys is not None
    assert keys[1] == 30
    assert {"{bigint}", "{uuid}", "{text}", "{bigint,smallint}", "{uuid,text}", None} <= set(
        keys[0]
    )
    assert filled == (29,)
