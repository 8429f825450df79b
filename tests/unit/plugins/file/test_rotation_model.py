"""Whatever is written, rotated and restarted in whatever order: each line once, in order."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.unit.plugins.file.rotated_log import RotatedLog


class Rotations(RuleBasedStateMachine):
    """A log that is rotated in one way, and followed by its name or by a pattern."""

    log: RotatedLog
    mode = "create"

    @initialize(
        mode=st.sampled_from(["create", "nocreate", "copytruncate"]),
        pattern=st.sampled_from(["app.log", "*.log", "app.log*"]),
        dated=st.booleans(),
    )
    def begin(self, mode: str, pattern: str, dated: bool) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="headrace-")
        folder = Path(self.folder.name) / os.urandom(4).hex()
        self.mode = mode
        self.log = RotatedLog(folder, pattern=pattern, dated=dated)
        # Where a log begins is kept with its first lines.
        self.log.write()
        self.log.poll()

    @rule(lines=st.integers(1, 8))
    def write(self, lines: int) -> None:
        self.log.write(lines)

    @rule()
    def write_half(self) -> None:
        self.log.write_half()

    @rule()
    def poll(self) -> None:
        self.log.poll()

    @rule()
    def restart(self) -> None:
        self.log.restart()

    @rule()
    def pass_a_second(self) -> None:
        self.log.now += 1

    @rule()
    def pass_the_wait(self) -> None:
        self.log.reopen()  # a daemon is signalled before that
        self.log.poll()
        self.log.wait()

    @rule()
    def reopen(self) -> None:
        self.log.reopen()

    @rule(newest=st.booleans())
    def compress(self, newest: bool) -> None:
        if self.mode != "copytruncate":
            self.log.reopen()
        self.log.compress(newest=newest)

    # With notifempty. Lines that a writer adds late to a file that was empty when it was
    # rotated come, but perhaps after those of the next file.
    @precondition(lambda self: self.mode != "copytruncate" and self.log.size_bytes)
    @rule()
    def rename(self) -> None:
        self.log.rename(create=self.mode == "create")

    @precondition(lambda self: self.mode == "copytruncate")
    @rule(between=st.booleans())
    def copy_and_truncate(self, between: bool) -> None:
        self.log.copy()
        if between:
            self.log.poll()
        self.log.truncate()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            found = list(self.log.settled())
            self.log.close()
            self.folder.cleanup()
            assert found == self.log.written


TestRotations = Rotations.TestCase
TestRotations.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
