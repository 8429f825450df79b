"""A year of flights, hour by hour, whose server is killed: the target is that of one copy."""

import json
import os
import random
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.e2e.pairs import HEADRACE
from tests.e2e.test_job_kills import SEED, Killing
from tests.postgresql_server import PostgresqlServer
from tests.waiting import until

from headrace.demo.folder import copy_tables

HOUR = timedelta(hours=1)
START = datetime(2013, 1, 1, tzinfo=UTC)
END = START + int(os.environ.get("HEADRACE_KILLS_DAYS", "365")) * 24 * HOUR + 6 * HOUR
"""The zone of the airports is behind UTC: the year is over a little later."""
WINDOWS = (END - START) // HOUR
KILLS, SLOTS = 8, 4
COLUMNS = """year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int,
arr_time int, sched_arr_time int, arr_delay int, carrier text, flight int, tailnum text,
origin text, dest text, air_time int, distance int, hour int, minute int,
time_hour timestamptz"""


def fill(url: str, folder: Path) -> int:
    """Load the flights; return how many there are."""
    copy_tables(folder)
    with psycopg.connect(url, autocommit=True) as database, database.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'")
        cursor.execute(f"CREATE TABLE flights ({COLUMNS})".encode())
        with cursor.copy("COPY flights FROM STDIN (FORMAT csv, HEADER, NULL 'NA')") as copy:
            copy.write((folder / "flights.csv").read_bytes())
        cursor.execute("DELETE FROM flights WHERE time_hour >= %s", [END])
        cursor.execute("CREATE INDEX ON flights (time_hour)")
        cursor.execute("ANALYZE flights")
        [count] = cursor.execute("SELECT count(*) FROM flights").fetchone() or [0]
        return int(count)


def copied(url: str, target: Path) -> dict[str, Any]:
    source = {"connector": "jdbc", "connection.url": url, "table.include.list": "flights"}
    return {"name": "flights", "source": source, "sinks": [_sink(target)]}


def _sink(target: Path) -> dict[str, str]:
    return {"connector": "delta", "path": str(target)}


def rows(target: Path) -> pa.Table:
    table = DeltaTable(str(target)).to_pyarrow_table()
    names = sorted(table.column_names)
    return table.select(names).sort_by([(name, "ascending") for name in names])


def by_hours(url: str, target: Path) -> dict[str, Any]:
    document = copied(url, target)
    document["source"]["window.column"] = "time_hour"
    schedule = {
        "every": "1 hour",
        "start": START.replace(tzinfo=None).isoformat(),
        "end": END.replace(tzinfo=None).isoformat(),
        "overlap": "parallel",
        "parallel": SLOTS,
        "catchup": "none",
    }
    return {**document, "retries": "20", "retry.delay": "1 second", "schedule": schedule}


def begin(killing: Killing, document: dict[str, Any]) -> None:
    killing.post("/jobs", document)
    killing.post("/jobs/flights/submit")
    until(lambda: killing.server.ask("/v1/jobs/flights")["state"] != "approved")
    bounds = {"lower": START.isoformat(), "upper": END.isoformat()}
    assert killing.post("/jobs/flights/backfills", bounds)["total"] == WINDOWS


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_year_by_hours_is_the_year(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    killing = Killing(tmp_path, random.Random(SEED))  # noqa: S311 - no secret
    killing.server.env["HEADRACE_JOB_RUNS"] = str(SLOTS)
    with postgresql.database() as url:
        count = fill(url, tmp_path / "data")
        whole = tmp_path / "whole.yaml"
        whole.write_text(json.dumps(copied(url, tmp_path / "whole")))
        home = {**os.environ, "HEADRACE_HOME": str(tmp_path / "other")}
        subprocess.run([HEADRACE, "run", "--once", str(whole)], check=True, env=home)
        while killing.kills < KILLS:
            with killing.server.serving() as process:
                if not killing.kills:
                    begin(killing, by_hours(url, tmp_path / "out"))
                progress(killing, WINDOWS * (killing.kills + 1) // (KILLS + 1))
                killing.kill(process)
        with killing.server.serving():
            progress(killing, WINDOWS)
            runs = killing.runs()
    assert Counter(run["state"] for run in runs) == {"succeeded": WINDOWS}
    assert len({run["boundaries"]["lower"] for run in runs}) == WINDOWS
    again = [run["id"] for run in runs if run["attempt"] > 1]
    assert 0 < len(again) <= KILLS * SLOTS, "only what was killed runs again"
    assert sum(run["counts"]["read"] for run in runs) == count
    found, expected = rows(tmp_path / "out"), rows(tmp_path / "whole")
    assert found.num_rows == count
    assert found.equals(expected)


def progress(killing: Killing, windows: int) -> None:
    """Wait until so many windows are done."""
    job, end = "/v1/jobs/flights", time.monotonic() + 3600
    while killing.server.ask(job)["runs"].get("succeeded", 0) < windows:
        assert time.monotonic() < end, killing.server.log.read_text()[-3000:]
        time.sleep(1)
