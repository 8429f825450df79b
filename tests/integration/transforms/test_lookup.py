"""Lookup: fields from a table and from an HTTP service."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.integration.dataplane.flow_doubles import (
    Kept,
    batch,
    condition,
    dead_letters,
    flow,
    read_topic,
    transform,
    values,
)

from headrace.dataplane import Step
from headrace.dataplane.chain import apply_chain
from headrace.dataplane.records import record_frame
from headrace.model import Counts
from headrace.sdk import (
    CodeTransform,
    ConfigError,
    ConfigErrors,
    RetriableError,
    TransformContext,
)
from headrace_plugins.transforms.lookup import Lookup

pytestmark = pytest.mark.spark


def write_names(folder: Path, mark: str = "") -> Path:
    file = folder / "names.csv"
    rows = [f"{n},name {n}{mark},{n}.5" for n in range(5)] + ["5,five,x"]
    file.write_text("\n".join(["number,name,rate", *rows]))
    return file


def step(**config: str) -> Step:
    return Step(transform(Lookup, "look", **config))


def of_table(file: Path, **config: str) -> Step:
    fields = {"fields": "name string, rate double", "on": "id:number", "format": "csv"}
    return step(table=str(file), **fields, **config)


def test_fields_come_from_a_table_and_are_null_for_what_it_lacks(spark, tmp_path: Path) -> None:
    sink = Kept()
    look = of_table(write_names(tmp_path), prefix="the_")
    counts = flow(spark, [sink], look).run(batch(1, 0, 10))
    assert counts == Counts(read=10, written=10)
    found = {value["id"]: value for value in values(sink)}
    assert found[2] == {"id": 2, "text": "2", "the_name": "name 2", "the_rate": 2.5}
    assert (found[5]["the_name"], found[5]["the_rate"]) == ("five", None)
    assert found[9]["the_name"] is None


@pytest.mark.parametrize(("name", "spared"), [("more", None), ("text", "2")])
def test_a_record_that_is_spared_keeps_what_it_has(
    spark, tmp_path: Path, name: str, spared: str | None
) -> None:
    file = write_names(tmp_path)
    file.write_text(file.read_text().replace("name,", f"{name},", 1))
    look = step(table=str(file), fields=f"{name} string", on="id:number", format="csv")
    sink = Kept()
    flow(spark, [sink], replace(look, predicate=condition("id > 2"))).run(batch(1, 0, 4))
    found = {value["id"]: value[name] for value in values(sink)}
    assert (found[2], found[3]) == (spared, "name 3")


def test_what_a_table_lacks_can_be_dropped_or_rejected(spark, tmp_path: Path) -> None:
    file = write_names(tmp_path)
    dropped = flow(spark, [Kept()], of_table(file, missing="drop")).run(batch(1, 0, 10))
    assert dropped == Counts(read=10, written=6, filtered=4, filters={"look": 4})
    letters = dead_letters(tmp_path, "dlq")
    reject = of_table(file, missing="reject")
    counts = flow(spark, [Kept()], reject, dead_letters=letters).run(batch(1, 0, 10))
    assert counts.rejected == 4
    headers = {h["key"]: h["value"] for h in read_topic(spark, tmp_path, "dlq")[0]["headers"]}
    assert "no row for" in headers["__connect.errors.exception.message"]
    assert headers["__connect.errors.class.name"] == "look (Lookup)"


def test_a_table_is_read_anew_between_batches_when_it_is_old(spark, tmp_path: Path) -> None:
    sink = Kept()
    copy = flow(spark, [sink], of_table(write_names(tmp_path), refresh_ms="0"))
    copy.run(batch(1, 0, 1))
    write_names(tmp_path, "!")
    copy.run(batch(2, 1, 2))
    assert [value["name"] for value in values(sink)] == ["name 0", "name 1!"]


def test_a_table_with_two_rows_for_a_key_is_refused(spark, tmp_path: Path) -> None:
    file = write_names(tmp_path)
    file.write_text(file.read_text() + "\n1,one more,1")
    with pytest.raises(ConfigError, match="more than one row"):
        flow(spark, [Kept()], of_table(file)).run(batch(1, 0, 1))


class Service(ThreadingHTTPServer):
    """Knows items below 8; says no to 3; is down until it is told that it is up."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.asked: list[str] = []
        self.times: list[float] = []
        self.up = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/items/{{id}}"


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Service)
        self.server.asked.append(self.path)
        self.server.times.append(time.monotonic())
        number = int(self.path.rpartition("/")[2])
        status = 200 if number < 8 else 404
        if number == 3 or self.headers["Authorization"] != "Bearer secret":
            status = 403
        self.send_response(status if self.server.up else 503)
        body = json.dumps({"name": f"item {number}", "rate": "x" if number == 5 else number})
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, text: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def of_service(service: Service, **config: str) -> Step:
    fields = {"fields": "name string, rate double", "authorization": "Bearer secret"}
    return step(**{"url": service.url, **fields, **config})


def test_fields_come_from_a_service_that_is_asked_once_for_each(
    spark, service: Service, tmp_path: Path
) -> None:
    sink = Kept()
    letters = dead_letters(tmp_path, "dlq")
    copy = flow(spark, [sink], of_service(service), dead_letters=letters)
    counts = copy.run(batch(1, 0, 10))
    assert (counts.read, counts.written, counts.rejected) == (10, 9, 1)
    found = {value["id"]: value for value in values(sink)}
    assert found[2] == {"id": 2, "text": "2", "name": "item 2", "rate": 2.0}
    assert (found[5]["name"], found[5]["rate"]) == ("item 5", None)
    assert found[8]["name"] is None
    (dead,) = read_topic(spark, tmp_path, "dlq")
    headers = {h["key"]: h["value"] for h in dead["headers"]}
    assert "status 403" in headers["__connect.errors.exception.message"]
    # Of two workers, and over dead letters, each has asked for what it needed.
    assert len(service.asked) <= 20


def test_a_url_reaches_into_structs(spark, service: Service) -> None:
    query = """SELECT IF(id = 3, NULL, struct(IF(id = 1, NULL, struct(id)) AS `a.b`)) AS value
    FROM range(4)"""
    look = of_service(service, url=service.url.replace("{id}", "{`a.b`.id}"))
    records = apply_chain(record_frame(spark.sql(query), "t"), [look])
    found = [row["value"] and row["value"]["name"] for row in records.frame.collect()]
    assert found == ["item 0", None, "item 2", None]


def test_a_service_that_is_down_puts_the_batch_off(spark, service: Service) -> None:
    service.up = False
    look = of_service(service, retries="1", missing="drop")
    copy = flow(spark, [Kept()], look)
    with pytest.raises(RetriableError, match="status 503"):
        copy.run(batch(1, 0, 2))
    service.up = True
    assert copy.run(batch(1, 0, 2, again=True)) == Counts(read=2, written=2)


def test_all_workers_together_ask_no_faster_than_the_task_may(
    spark, service: Service, tmp_path: Path
) -> None:
    look = of_service(service, rate_limit="2")
    assert isinstance(look.transform, CodeTransform)
    look.transform.running.start(TransformContext("copy", 0, tmp_path / "state"))
    flow(spark, [Kept()], look).run(batch(1, 4, 8))
    assert len(service.times) == 4
    # Two workers with two questions each: three waits in all, not one in each of them.
    times = sorted(service.times)
    assert times[-1] - times[0] >= 0.9


def test_a_lookup_is_checked_before_data_moves() -> None:
    def problems(**config: str) -> list[str]:
        props = {key.replace("_", "."): value for key, value in config.items()}
        with pytest.raises(ConfigErrors) as caught:
            Lookup.config_def().parse(props)
        return [error.problem for error in caught.value.errors]

    assert "Either table or url" in problems(fields="a int")[0]
    assert "requires on" in problems(fields="a int", table="t")[0]
    assert "Invalid URL" in problems(fields="a int", url="http://example.com/")[0]
    assert problems(fields="a nonsense", url="http://example.com/{id}")
