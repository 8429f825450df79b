"""Runs the connectors of the cases, under strace: ``python -m tests.lost_power.run_cases DIR``.

Each moment at which a batch is about to be finished in the store is noted in the trace.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

from tests.lost_power.cases import CASES, INPUTS
from tests.lost_power.disk import MARKER
from typing_extensions import override

from headrace.runtime.app import Runtime
from headrace.settings import load_settings
from headrace.store import Store


class Failures:
    """Shows what fails."""

    def batch_finished(self, batch, took) -> None:
        """See Events."""

    def state_changed(self, task, state, error) -> None:
        """See Events."""
        if error is not None:
            sys.stderr.write(f"{task}: {error}\n")

    def retrying(self, task, error, wait) -> None:
        """See Events."""
        sys.stderr.write(f"{task} is tried again: {error}\n")


class NotingStore(Store):
    """Notes in the trace when a position is about to move."""

    @override
    def finish_batch(self, task, *args, **kwargs):
        with suppress(FileNotFoundError), Path(f"{MARKER}{task.connector}").open():
            pass
        return super().finish_batch(task, *args, **kwargs)


def main(folder: Path) -> None:
    """Run all connectors in one process, to what there is."""
    settings = load_settings(
        home=folder / "home",
        topics_dir=folder / "topics",
        master="local[2]",
        worker_threads=2,
    )
    inputs = folder / "inputs"
    inputs.mkdir(parents=True)
    for name, text in INPUTS.items():
        (inputs / f"{name}.jsonl").write_text(text)
    files = []
    for case in CASES:
        text = json.dumps(case.definition)
        text = text.replace("{folder}", str(folder / "targets" / case.name))
        files.append(folder / f"{case.name}.yaml")
        files[-1].write_text(text.replace("{inputs}", str(inputs)))
    store = NotingStore(settings.store_file)
    with Runtime(settings, store) as runtime:
        outcome = runtime.run(runtime.definitions(files), Failures(), once=True)
    if outcome.failed:
        sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
