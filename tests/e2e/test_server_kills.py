"""Guarantees 1 to 3 of a server that is killed at random moments amid clients' changes."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from tests.e2e.churning import LINES, Client, Feeder
from tests.e2e.killed_store import KilledStore
from tests.waiting import until

HEADRACE = Path(sys.executable).with_name("headrace")
SECONDS = 240


@dataclass
class Killing:
    """A server that is killed again and again, and what is looked at in between."""

    folder: Path
    chance: random.Random
    starting: int = 0
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.home = self.folder / "home"
        self.home.mkdir()
        self.client = Client(self.folder, self.chance)
        self.feeder = Feeder(self.folder / "steady")
        self.store = KilledStore(self.home / "store.db")
        self.log = self.home / "server.err"

    def start(self) -> subprocess.Popen[str]:
        with self.log.open("a") as errors:
            return subprocess.Popen(
                [HEADRACE, "server", "--port", "0", "--json"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "HEADRACE_HOME": str(self.home)},
            )

    def serve(self, process: subprocess.Popen[str]) -> None:
        """Wait until a server answers."""
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, self.log.read_text()[-3000:]
        self.client.url = json.loads(line)["url"]
        self.client.dead.clear()

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill the server; all that it had started must end by itself."""
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        self.client.dead.set()
        process.wait(SECONDS)
        assert process.stdout is not None
        process.stdout.close()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive

    def one_kill(self) -> None:
        process = self.start()
        if self.chance.random() < 0.15:
            self.kills["while it started"] += 1
            time.sleep(self.chance.uniform(0.5, 8))
        else:
            self.serve(process)
            self.check_served()
            if self.chance.random() < 0.25:
                self.reset()
            changer = threading.Thread(target=self.client.run)
            changer.start()
            self.kills["while it served"] += 1
            self.wait_for_a_moment()
            self.kill(process)
            changer.join(SECONDS)
            self.check_left()
            return
        self.kill(process)

    def wait_for_a_moment(self) -> None:
        """Wait a while; most kills are to come while data moves."""
        before, end = self.store.moved(), time.monotonic() + 30
        if self.chance.random() < 0.75:
            while self.store.moved() == before and time.monotonic() < end:
                time.sleep(0.1)
        self.kills["while data moved"] += self.store.moved() > before
        time.sleep(self.chance.uniform(0.2, 4))

    def check_left(self) -> None:
        """Look at the store of a dead server: every acknowledged change is in it."""
        client = self.client
        assert not client.wrong
        self.store.check()
        doubt, client.doubt = client.doubt, None
        if doubt is not None:
            # Either all of it was done, or nothing.
            kept = self.store.connectors().get(doubt.name)
            after = doubt.after and (doubt.after.config, doubt.after.target)
            before = client.wishes.get(doubt.name)
            was = before and (before.config, before.target)
            assert kept in (after, was), doubt
            told = self.store.events()[doubt.name, doubt.event or ""]
            if doubt.event and told > client.events[doubt.name, doubt.event]:
                assert kept == after, doubt
                client.settle(doubt)
                self.kills["and the change was made"] += 1
            else:
                assert kept == was, doubt
        assert self.store.connectors() == {
            name: (wish.config, wish.target) for name, wish in client.wishes.items()
        }
        assert self.store.events() == client.events

    def check_served(self) -> None:
        """Look at a new server: it comes to all that is wanted, and it alone runs tasks."""
        wishes = self.client.wishes

        def wrong() -> list[str]:
            shown = self.client.shown()
            assert shown.keys() == wishes.keys()
            return [
                f"{name}: {each['status']}"
                for name, each in shown.items()
                if each["info"]["config"] != wishes[name].config
                or each["status"]["connector"]["state"] != wishes[name].target
                or {task["state"] for task in each["status"]["tasks"]} - {wishes[name].target}
            ]

        until(lambda: not wrong(), wrong)
        assert len(self.store.owners()) <= 1

    def finish(self) -> None:
        """Let a last server do all that is left, and compare what came with what went."""
        process = self.start()
        self.serve(process)
        self.check_served()
        self.feeder.ended.set()
        for name in sorted(self.client.wishes):
            self.client.resume(name)
        assert not self.client.wrong
        until(self.has_all, self.client.shown)
        self.check_reset()
        self.check_served()
        process.terminate()
        assert process.wait(SECONDS) == 0, self.log.read_text()[-3000:]
        assert process.stdout is not None
        process.stdout.close()
        self.store.check()
        assert self.store.owners() == set()

    def check_reset(self) -> None:
        """Let a sink write all once more: as often as it was asked to, and not once more."""
        begun = self.begun("again-sink")
        self.reset()
        until(lambda: self.begun("again-sink") == begun + 1, self.client.shown)
        until(self.has_all, self.client.shown)
        assert self.begun("again-sink") == begun + 1
        assert self.store.unfinished("again-sink") == 0

    def reset(self) -> None:
        name = "again-sink"
        self.client.reset_surely(name, lambda: not self.store.unfinished(name))

    def begun(self, name: str) -> int:
        """Return how often a sink has begun to write its topic."""
        file = self.folder / name
        return file.read_text().splitlines().count("line 0") if file.exists() else 0

    def has_all(self) -> bool:
        """Return whether every line came, exactly once and in order. Fails for one too many."""
        source = (self.folder / "steady").read_text().splitlines()
        done = [self.sink_has_all("steady-sink", source, 0)]
        done.append(self.sink_has_all("again-sink", source, self.client.resets))
        for name, wish in self.client.wishes.items():
            if name.startswith("y"):
                done.append(self.sink_has_all(Path(wish.config["file"]).name, source, 0))
            elif name.startswith("x"):
                done.append(len(self.topic(wish.config["topic"])) == LINES)
        return all(done)

    def sink_has_all(self, name: str, source: list[str], resets: int) -> bool:
        """Compare a sink's file; it begins anew with each reset."""
        file = self.folder / name
        text = file.read_text() if file.exists() else ""
        found = text[: text.rfind("\n") + 1].splitlines()
        starts = [n for n, line in enumerate(found) if line == source[0]]
        assert len(starts) <= resets + 1, name
        if not starts:
            assert not found, name
            return False
        for start, end in zip(starts, [*starts[1:], len(found)], strict=True):
            assert found[start:end] == source[: end - start], name
        return starts[0] == 0 and len(found) - starts[-1] == len(source)

    def topic(self, name: str) -> list[str]:
        folder = self.home / "topics" / name
        if not DeltaTable.is_deltatable(str(folder)):
            return []
        table = DeltaTable(folder).to_pyarrow_table(columns=["value"])
        lines = [str(value) for value in table.column("value").to_pylist()]
        assert len(lines) == len(set(lines)), name
        return lines

    def check_topics_of_the_gone(self) -> None:
        for folder in (self.home / "topics").glob("x*"):
            self.topic(folder.name)


def kill_thirty_times(folder: Path, seed: int, kills: int = 30) -> Killing:
    chance = random.Random(seed)  # noqa: S311 - no secret
    run = Killing(folder, chance)
    feeding = threading.Thread(target=run.feeder.run)
    feeding.start()
    try:
        process = run.start()
        run.serve(process)
        run.client.steady()
        run.kill(process)
        run.check_left()
        for _ in range(kills):
            run.one_kill()
        run.finish()
        run.check_topics_of_the_gone()
    finally:
        run.feeder.ended.set()
        feeding.join()
    return run


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(5400)
def test_thirty_kills_lose_no_acknowledged_change_and_double_no_line(tmp_path: Path) -> None:
    run = kill_thirty_times(tmp_path, seed=5)
    assert run.kills["while it started"] + run.kills["while it served"] == 30
    # How many come while data moves is up to the machine's load.
    assert run.kills["while data moved"] > 0
    assert run.client.done["reset"] > 1, run.client.refusals
    acts = ("create", "configure", "patch", "pause", "resume", "stop", "restart", "delete")
    assert {act for act in acts if not run.client.done[act]} == set()
