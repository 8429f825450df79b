"""One CSV file of many gigabytes into Parquet, and the memory that it takes.

The file is made first, of the same rows again and again. While it is copied, the resident
memory of the JVM, of the driver's Python and of all Python workers together is looked at twice
a second: it has to be as large in the last tenth of the time as in the first ones. Not a part
of ``make bench``, as it needs as much disk.

    python benchmarks/large_file.py [--gigabytes 20]
"""

import argparse
import os
import threading
from collections import defaultdict
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from harness import bench, machine, processes, save, timed

SCHEMA = "id bigint, name string, amount decimal(12,2), score double, day date, at timestamp"
HEADER = b"id,name,amount,score,day,at\n"
ROWS = 1_000_000
TENTHS = 10


class Watch:
    """Samples the memory of kinds of processes in a thread."""

    def __init__(self) -> None:
        """Start to sample."""
        self.samples: dict[str, list[int]] = defaultdict(list)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._stop.wait(0.5):
            now = dict.fromkeys(("JVM", "driver", "workers"), 0)
            for process in processes():
                try:
                    # What forked processes share counts in each by its part.
                    size = process.memory_full_info().pss
                    is_java = process.name() == "java"
                except psutil.Error:
                    continue
                is_own = process.pid == os.getpid()
                now["JVM" if is_java else "driver" if is_own else "workers"] += size
            for kind, size in now.items():
                self.samples[kind].append(size)

    def stop(self) -> dict[str, list[int]]:
        """Return the peak of each kind in each tenth of the time, in MiB."""
        self._stop.set()
        self._thread.join()
        peaks = {}
        for kind, sizes in self.samples.items():
            step = max(1, len(sizes) // TENTHS)
            tenths = [max(sizes[at : at + step]) for at in range(0, len(sizes), step)]
            peaks[kind] = [peak >> 20 for peak in tenths]
        return peaks


def rows() -> bytes:
    """Return the lines of a million rows, some of whose values have line breaks."""
    return b"".join(
        b'%d,"name\n%d",%d.%02d,0.%d,2020-01-%02d,2024-05-06T07:08:%02d.%06dZ\n'
        % (n, n % 10007, n % 99999, n % 100, n * 7919 % 10**9, n % 28 + 1, n % 60, n)
        for n in range(ROWS)
    )


def main(gigabytes: float) -> None:
    """Make the file, copy it, and print and keep the figures."""
    with bench() as run:
        block = rows()
        times = max(1, round(gigabytes * 10**9 / len(block)))
        file, target = run.folder / "large.csv", run.folder / "target"
        with file.open("wb") as out:
            out.write(HEADER)
            for _ in range(times):
                out.write(block)
        size, count = file.stat().st_size, times * ROWS
        del block
        print(f"{size / 1e9:.1f} GB, {count:,} rows in one file; {machine()}", flush=True)
        source = {"connector": "file", "path": str(file), "schema": SCHEMA}
        sink = {"connector": "file", "path": str(target), "format": "parquet"}
        watch = Watch()
        seconds = timed(lambda: run.run({"source": source, "sinks": [sink]}))
        peaks = watch.stop()
        written = sum(pq.read_metadata(path).num_rows for path in _files(target))
        if written != count:
            message = f"{written} rows in the target, not {count}"
            raise SystemExit(message)
        print(
            f"{seconds:.0f} s, {count / seconds:,.0f} rows/s, {size / seconds / 1e6:.0f} MB/s"
        )
        for kind, sizes in peaks.items():
            print(f"peak MiB of the {kind}, in tenths of the time: {sizes}")
    save(
        "large_file",
        {"bytes": size, "rows": count, "seconds": seconds, "peaks": peaks},
    )


def _files(target: Path) -> list[Path]:
    return list(target.glob("part-*.parquet"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=20)
    main(parser.parse_args().gigabytes)
