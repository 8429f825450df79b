"""The start: from the command to the first row in the target.

Cold with and without the class archive, and in a JVM that the command before has left.

python benchmarks/bench_start.py [--runs 5]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import machine, save

DEFINITION = """
name: {name}
source:
  connector: file
  path: in.csv
sinks:
  - connector: file
    path: {name}
    format: parquet
"""
NO_ARCHIVE = {"HEADRACE_SPARK_CONF": '{"spark.driver.defaultJavaOptions": "-Xshare:auto"}'}


def seconds_to_first_row(folder: Path, name: str, variables: dict[str, str]) -> float:
    """Run the command as a user would, and wait for the first file in the target."""
    (folder / "in.csv").write_text("id,name\n" + "".join(f"{n},n{n}\n" for n in range(100)))
    (folder / f"{name}.yaml").write_text(DEFINITION.format(name=name))
    command = [sys.executable, "-m", "headrace", "--home", "home", "run", "--once"]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, f"{name}.yaml"],
        cwd=folder,
        env=os.environ | {"HEADRACE_JAVA_IDLE": "0"} | variables,  # noqa: TID251 - the command's
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not list((folder / name).glob("part-*")):
        time.sleep(0.01)
    took = time.perf_counter() - began
    if process.wait() != 0:
        message = "the command failed"
        raise SystemExit(message)
    return took


def cold(variables: dict[str, str]) -> float:
    """Return the seconds of a command of a new home."""
    with tempfile.TemporaryDirectory(prefix="headrace-start-") as folder:
        return seconds_to_first_row(Path(folder), "cold", variables)


def after_others(runs: int) -> list[float]:
    """Return the seconds of commands that come one after the other, each a new connector."""
    with tempfile.TemporaryDirectory(prefix="headrace-start-") as name:
        folder, left = Path(name), {"HEADRACE_JAVA_IDLE": "30"}
        seconds_to_first_row(folder, "first", left)
        return [seconds_to_first_row(folder, f"next{n}", left) for n in range(runs)]


def main(runs: int) -> None:
    """Measure all of them and keep the figures."""
    print(machine())
    seconds: dict[str, list[float]] = {"with archive": [], "without": []}
    for _ in range(runs):
        seconds["with archive"].append(cold({}))
        seconds["without"].append(cold(NO_ARCHIVE))
    seconds["after another command"] = after_others(runs)
    for name, values in seconds.items():
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(f"first row {name}: {statistics.median(values):.1f} s ({spread})")
    save("start", {"seconds": seconds})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    main(parser.parse_args().runs)
