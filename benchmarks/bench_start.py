"""The cold start: from the command to the first row in the target, with and without archive.

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
name: start
source:
  connector: file
  path: {folder}/in.csv
sinks:
  - connector: file
    path: {folder}/out
    format: parquet
"""


def seconds_to_first_row(*, archive: bool) -> float:
    """Run the command as a user would, and wait for the first file in the target."""
    with tempfile.TemporaryDirectory(prefix="headrace-start-") as name:
        folder = Path(name)
        (folder / "in.csv").write_text("id,name\n" + "".join(f"{n},n{n}\n" for n in range(100)))
        (folder / "start.yaml").write_text(DEFINITION.format(folder=folder))
        command = [sys.executable, "-m", "headrace", "--home", str(folder / "home"), "run"]
        conf = {} if archive else {"HEADRACE_SPARK_CONF": NO_ARCHIVE}
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--once", str(folder / "start.yaml")],
            env=os.environ | conf,  # noqa: TID251 - the command's own environment
            stdout=subprocess.DEVNULL,
        )
        while process.poll() is None and not list((folder / "out").glob("part-*")):
            time.sleep(0.01)
        took = time.perf_counter() - began
        if process.wait() != 0:
            message = "the command failed"
            raise SystemExit(message)
        return took


NO_ARCHIVE = '{"spark.driver.defaultJavaOptions": "-Xshare:auto"}'


def main(runs: int) -> None:
    """Measure both in turn and keep the figures."""
    print(machine())
    seconds: dict[str, list[float]] = {"with archive": [], "without": []}
    for _ in range(runs):
        seconds["with archive"].append(seconds_to_first_row(archive=True))
        seconds["without"].append(seconds_to_first_row(archive=False))
    for name, values in seconds.items():
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(f"first row {name}: {statistics.median(values):.1f} s ({spread})")
    save("start", {"seconds": seconds})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    main(parser.parse_args().runs)
