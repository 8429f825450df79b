"""The kinds of faults that the soak makes."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeAlias

import psutil
from tests.faults.soak import LEASE_SECONDS, Soak

Kind: TypeAlias = tuple[str, float, Callable[[Soak], str | None]]

SHORT, LONG = (0.5, 3.0), (LEASE_SECONDS + 1.0, LEASE_SECONDS + 4.0)


def kill_server(soak: Soak) -> str | None:
    left = soak.server.kill()
    soak.start_again()
    return f"left running: {left}" if left else None


def stop_server(soak: Soak) -> str | None:
    code, left = soak.server.stop()
    soak.start_again()
    wrong = [f"ended with {code}"] if code else []
    wrong += [f"left running: {left}"] if left else []
    return ", ".join(wrong) or None


def kill_jvm(soak: Soak) -> str | None:
    return _kill_one(soak, "jvm")


def kill_host(soak: Soak) -> str | None:
    return _kill_one(soak, "host")


def kill_python(soak: Soak) -> str | None:
    return _kill_one(soak, "python")


def _kill_one(soak: Soak, kind: str) -> str | None:
    found = soak.server.children(kind)
    if not found:
        return "none there"
    soak.chance.choice(sorted(found, key=lambda p: p.pid)).kill()
    return None


def suspend_server(soak: Soak) -> str | None:
    soak.server.signal(signal.SIGSTOP)
    _hold(soak)
    soak.server.signal(signal.SIGCONT)
    return None


def suspend_jvm(soak: Soak) -> str | None:
    return _suspend(soak, "jvm")


def suspend_host(soak: Soak) -> str | None:
    return _suspend(soak, "host")


def _suspend(soak: Soak, kind: str) -> str | None:
    found = soak.server.children(kind)
    if not found:
        return "none there"
    for process in found:
        process.suspend()
    _hold(soak)
    for process in found:
        try:
            process.resume()
        except psutil.NoSuchProcess:
            return "it ended while it was suspended"
    return None


def _hold(soak: Soak) -> None:
    beyond = soak.chance.random() < 0.3
    time.sleep(soak.chance.uniform(*(LONG if beyond else SHORT)))


def full(name: str) -> Callable[[Soak], str | None]:
    def fill(soak: Soak) -> str | None:
        with soak.volumes[name].full():
            time.sleep(soak.chance.uniform(1, 5))
        return None

    return fill


def read_only(name: str) -> Callable[[Soak], str | None]:
    def lock(soak: Soak) -> str | None:
        if not soak.volumes[name].lock():
            return "in use, so it stayed writable"
        time.sleep(soak.chance.uniform(1, 4))
        soak.volumes[name].unlock()
        return None

    return lock


def lose_permission(soak: Soak) -> str | None:
    """Take the right to read or write away from something that is used."""
    places = [
        soak.targets,
        soak.topics / "lines",
        soak.topics / "orders" / "_delta_log",
        soak.targets / "lines.txt",
        soak.targets / "orders-append",
        soak.feeder.log,
        soak.feeder.sets,
    ]
    place = soak.chance.choice([each for each in places if each.exists()])
    mode = place.stat().st_mode
    place.chmod(0)
    time.sleep(soak.chance.uniform(0.5, 3))
    place.chmod(mode)
    return None


def reconfigure(soak: Soak) -> str | None:
    """Change a connector's configuration in some way that keeps what it delivers."""
    name, change = soak.chance.choice(
        [
            ("sets", {"tasks.max": str(soak.chance.randint(1, 3))}),
            ("sets", {"max.files": str(soak.chance.randint(1, 50))}),
            ("lines", {"batch.size": str(soak.chance.randint(3, 500))}),
            ("orders-append", {"batch.max.rows": str(soak.chance.randint(50, 5000))}),
            ("orders-upsert", {"batch.max.rows": str(soak.chance.randint(50, 5000))}),
            ("lines-file", {"poll.interval.ms": str(soak.chance.randint(200, 2000))}),
            ("lines-delta", _with_header(soak)),
            ("orders-folder", {"transforms": "", "batch.max.rows": "300"}),
        ]
    )
    soak.server.settled("PATCH", f"/connectors/{name}/config", change)
    return None


def _with_header(soak: Soak) -> dict[str, str]:
    if soak.chance.random() < 0.5:
        return {"transforms": ""}
    return {
        "transforms": "mark",
        "transforms.mark.type": "InsertHeader",
        "transforms.mark.header": "seen",
        "transforms.mark.value.literal": "yes",
    }


def pause(soak: Soak) -> str | None:
    return _away_for_a_while(soak, "pause")


def stop(soak: Soak) -> str | None:
    return _away_for_a_while(soak, "stop")


def _away_for_a_while(soak: Soak, how: str) -> str | None:
    name = soak.chance.choice(sorted(soak.pipelines.configs()))
    soak.server.settled("PUT", f"/connectors/{name}/{how}")
    time.sleep(soak.chance.uniform(0.2, 3))
    soak.server.settled("PUT", f"/connectors/{name}/resume")
    return None


def restart(soak: Soak) -> str | None:
    name = soak.chance.choice(sorted(soak.pipelines.configs()))
    soak.server.settled("POST", f"/connectors/{name}/restart?includeTasks=true")
    return None


def replace(soak: Soak) -> str | None:
    soak.make_extra()
    return None


def reset(soak: Soak) -> str | None:
    """Send a whole topic once more into a target that upserts."""
    name = "orders-upsert"
    soak.server.settled("PUT", f"/connectors/{name}/stop")
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            found = soak.server.ask("GET", f"/connectors/{name}/status")
            if found["connector"]["state"] == "STOPPED" and not found["tasks"]:
                break
            time.sleep(0.2)
        soak.server.ask("DELETE", f"/connectors/{name}/offsets")
    except ValueError as error:
        if "unfinished" not in str(error):
            return str(error)[:200]
        return "refused: a batch is in doubt"
    finally:
        soak.server.settled("PUT", f"/connectors/{name}/resume")
    return None


def rotate(soak: Soak) -> str | None:
    soak.feeder.rotate(late=soak.chance.choice([0, 0, 0.5, 2]))
    return None


def lock_store(soak: Soak) -> str | None:
    """Keep everyone else out of the store's file for a while."""
    with closing(sqlite3.connect(soak.home / "store.db", timeout=30)) as db:
        db.isolation_level = None
        db.execute("BEGIN EXCLUSIVE")
        time.sleep(soak.chance.uniform(1, 8))
        db.execute("ROLLBACK")
    return None


def restart_database(soak: Soak) -> str | None:
    assert soak.database is not None
    with soak.database.paused():
        time.sleep(soak.chance.uniform(0.2, 5))
    return None


def suspend_database(soak: Soak) -> str | None:
    assert soak.database is not None
    with soak.database.suspended():
        _hold(soak)
    return None


def replay(soak: Soak) -> str | None:
    """Send what was put aside through the chain again, which puts most of it aside again."""
    answer = soak.server.ask(
        "POST", "/v1/connectors/orders-append/dead-letters/replay", {}, seconds=120
    )
    error = answer["error"]
    return f"{error['code']}: {error['problem'][:120]}" if error else None


def kinds(soak: Soak) -> list[Kind]:
    """Return the faults that can be made here, each with its weight."""
    found: list[Kind] = [
        ("server killed", 4, kill_server),
        ("server asked to stop", 1.5, stop_server),
        ("JVM killed", 2, kill_jvm),
        ("plugin host killed", 5, kill_host),
        ("Spark's Python killed", 4, kill_python),
        ("server suspended", 5, suspend_server),
        ("JVM suspended", 4, suspend_jvm),
        ("plugin host suspended", 5, suspend_host),
        ("permission lost", 10, lose_permission),
        ("configuration changed", 10, reconfigure),
        ("connector paused", 7, pause),
        ("connector stopped", 7, stop),
        ("connector restarted", 7, restart),
        ("connector deleted and made anew", 4, replace),
        ("offsets reset", 3, reset),
        ("log rotated", 10, rotate),
    ]
    for name in soak.volumes:
        found.append((f"no space for {name}", 5, full(name)))
        if name != "home":  # the store and the log are open for writing all the time
            found.append((f"{name} read-only", 5, read_only(name)))
    if soak.database is None:
        found.append(("store locked", 6, lock_store))
    else:
        found.append(("PostgreSQL restarted", 4, restart_database))
        found.append(("PostgreSQL suspended", 4, suspend_database))
    return found
