"""A client that changes connectors without pause, and knows what was acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
STEADY = ("steady-source", "steady-sink", "again-sink")
LINES = 40


@dataclass(frozen=True)
class Wish:
    """What a connector was asked to be."""

    config: dict[str, str]
    target: str = "RUNNING"


@dataclass(frozen=True)
class Doubt:
    """A change of which nobody said whether it was made."""

    name: str
    after: Wish | None
    event: str | None


class Gone(Exception):  # noqa: N818 - the end of a server, not a mistake
    """The server was killed."""


@dataclass
class Client:
    """Changes connectors, one request after the other, until the server dies.

    The connectors of ``STEADY`` live from first to last; those of ``names`` come and go, and
    each incarnation reads a file of its own into a topic of its own.
    """

    folder: Path
    chance: random.Random
    names: tuple[str, ...] = ("x0", "x1", "x2", "y0", "y1")
    wishes: dict[str, Wish] = field(default_factory=dict)
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    doubt: Doubt | None = None
    resets: int = 0
    made: int = 0
    done: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    url: str = ""
    dead: threading.Event = field(default_factory=threading.Event)

    def steady(self) -> None:
        """Make the connectors that stay."""
        source = {"connector.class": SOURCE, "file": f"{self.folder}/steady", "topic": "steady"}
        self.make("steady-source", source, "RUNNING")
        for name in ("steady-sink", "again-sink"):
            self.make(name, self.sink(name), "RUNNING")

    def sink(self, name: str) -> dict[str, str]:
        return {"connector.class": SINK, "topics": "steady", "file": f"{self.folder}/{name}"}

    def run(self) -> None:
        """Change things until the server dies."""
        while not self.dead.is_set():
            try:
                self.change()
            except Gone:
                return
            time.sleep(self.chance.uniform(0, 0.15))

    def change(self) -> None:
        absent = [name for name in self.names if name not in self.wishes]
        if absent and self.chance.random() < 0.35:
            self.create(self.chance.choice(absent))
            return
        name = self.chance.choice(sorted(self.wishes))
        acts: list[Callable[[str], object]] = [self.configure, self.patch, self.pause]
        acts += [self.stop, *[self.resume] * 3, self.restart]
        if name == "again-sink":
            acts += [self.reset] * 2
        if name in self.names:
            acts += [self.delete] * 2
        self.chance.choice(acts)(name)

    def create(self, name: str) -> None:
        self.made += 1
        mine = f"{name}-{self.made}"
        if name.startswith("x"):
            file = self.folder / f"in-{mine}"
            file.write_text("".join(f"{mine} {n}\n" for n in range(LINES)))
            config = {"connector.class": SOURCE, "file": str(file), "topic": mine}
        else:
            config = self.sink(mine)
        self.make(name, config, self.chance.choice(["RUNNING", "RUNNING", "PAUSED", "STOPPED"]))

    def make(self, name: str, config: dict[str, str], target: str) -> None:
        wish = Wish({**config, "name": name}, target)
        body = {"name": name, "config": config, "initial_state": target}
        self.ask("create", Doubt(name, wish, "created"), "POST", "", body)

    def configure(self, name: str) -> None:
        config = {**self.wishes[name].config, "batch.max.rows": self.number()}
        self.altered("configure", name, config)

    def patch(self, name: str) -> None:
        change = {"poll.interval.ms": str(self.chance.randrange(100, 900))}
        config = {**self.wishes[name].config, **change}
        self.altered("patch", name, config, change)

    def number(self) -> str:
        return str(self.chance.randrange(100, 10_000))

    def altered(
        self, act: str, name: str, config: dict[str, str], change: dict[str, str] | None = None
    ) -> None:
        old = self.wishes[name]
        event = None if config == old.config else "configured"
        doubt = Doubt(name, replace(old, config=config), event)
        method = "PATCH" if change else "PUT"
        self.ask(act, doubt, method, f"/{name}/config", change or config)

    def pause(self, name: str) -> None:
        self.set_target(name, "PAUSED", "pause")

    def resume(self, name: str) -> None:
        self.set_target(name, "RUNNING", "resume")

    def stop(self, name: str) -> None:
        self.set_target(name, "STOPPED", "stop")

    def set_target(self, name: str, target: str, act: str) -> None:
        old = self.wishes[name]
        event = None if target == old.target else "target"
        self.ask(act, Doubt(name, replace(old, target=target), event), "PUT", f"/{name}/{act}")

    def restart(self, name: str) -> None:
        # What has not been planned yet has no task that could be restarted.
        path = f"/{name}/restart?includeTasks=true"
        self.ask("restart", Doubt(name, self.wishes[name], "restart"), "POST", path)

    def delete(self, name: str) -> None:
        self.ask("delete", Doubt(name, None, "deleted"), "DELETE", f"/{name}")

    def reset(self, name: str) -> bool:
        """Make a sink write all of its topic once more; return whether the server did so."""
        self.stop(name)
        end = time.monotonic() + 30
        while not self.has_stopped(name) and time.monotonic() < end:
            time.sleep(0.05)
        doubt = Doubt(name, self.wishes[name], "offsets")
        done = self.ask("reset", doubt, "DELETE", f"/{name}/offsets")
        self.resume(name)
        return done

    def reset_surely(self, name: str, finished: Callable[[], bool]) -> None:
        """Reset a sink, also one that was killed amid a batch, which only a start finishes.

        Args:
            name: The sink.
            finished: Tells whether all batches that it began are finished.
        """
        end = time.monotonic() + 120
        while not self.reset(name):
            while not finished():
                assert time.monotonic() < end, self.refusals
                time.sleep(0.1)
            assert time.monotonic() < end, self.refusals

    def has_stopped(self, name: str) -> bool:
        return self.state(name) == "STOPPED" and not self.tasks(name)

    def tasks(self, name: str) -> list[str]:
        answer = self.request("GET", f"/{name}/status")
        tasks = answer.json()["tasks"] if answer.status_code == 200 else []
        return [str(task["state"]) for task in tasks]

    def state(self, name: str) -> str:
        answer = self.request("GET", f"/{name}/status")
        return str(answer.json()["connector"]["state"]) if answer.status_code == 200 else ""

    def ask(self, act: str, doubt: Doubt, method: str, path: str, body: object = None) -> bool:
        """Make a change, in doubt until the server says that it is made; return whether."""
        self.doubt = doubt
        answer = self.request(method, path, body)
        if answer.status_code < 300:
            self.settle(doubt)
            self.done[act] += 1
        elif act == "reset" and answer.status_code == 400:
            # It was killed amid a batch, which only a start can finish.
            self.done["reset refused"] += 1
            self.refusals[answer.text[:300]] += 1
        else:
            self.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        self.doubt = None
        return answer.status_code < 300

    def settle(self, doubt: Doubt) -> None:
        """Take a change for made."""
        if doubt.event is not None:
            self.events[doubt.name, doubt.event] += 1
        self.resets += doubt.event == "offsets"
        if doubt.after is None:
            del self.wishes[doubt.name]
        else:
            self.wishes[doubt.name] = doubt.after

    def request(self, method: str, path: str, body: object = None) -> httpx2.Response:
        try:
            url = f"{self.url}/connectors{path}"
            return httpx2.request(method, url, json=body, timeout=60)
        except httpx2.TransportError as error:
            if not self.dead.wait(10):
                self.wrong.append(f"{method} {path}: {error!r} of a server that lives")
            raise Gone from error

    def shown(self) -> dict[str, Any]:
        """Return all that the server shows of its connectors."""
        answer = self.request("GET", "?expand=info&expand=status")
        found: dict[str, Any] = answer.json()
        return found


@dataclass
class Feeder:
    """Adds lines to a file without pause, in order."""

    file: Path
    lines: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with self.file.open("a") as out:
            while not self.ended.wait(0.2):
                for _ in range(10):
                    out.write(f"line {self.lines}\n")
                    self.lines += 1
                out.flush()
