"""What processes use is told by what they are, and nothing that went up goes down."""

import subprocess
import sys
from contextlib import ExitStack

import psutil

from headrace.metrics import Processes

WAITS = "import subprocess, sys; sys.stdin.read()"
PARENT = (
    "import subprocess, sys\n"
    f"child = subprocess.Popen([sys.executable, '-c', {WAITS!r}], stdin=subprocess.PIPE)\n"
    "print(child.pid, flush=True)\n"
    "sys.stdin.read()\n"
    "child.stdin.close(); child.wait()\n"
)


def test_a_child_of_the_jvm_is_one_of_sparks_workers_and_a_hosts_child_is_of_the_host():
    with ExitStack() as ended:
        started = []
        for _ in range(2):
            process = subprocess.Popen(
                [sys.executable, "-c", PARENT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ended.callback(process.communicate)  # closes its input, which ends it
            assert process.stdout is not None
            process.stdout.readline()
            started.append(process)
        jvm, host = started
        processes = Processes(lambda: jvm.pid, lambda: [host.pid])
        used = processes.look()
        assert used["jvm"].count == 1
        assert used["python"].count == 1
        assert used["host"].count == 2
        assert used["driver"].count >= 1
        assert used["driver"].rss > psutil.Process().memory_info().rss // 2
        assert used["driver"].pss is None or used["driver"].pss <= used["driver"].rss
        ended.close()
        again = processes.look()
        assert again["jvm"].count == again["python"].count == again["host"].count == 0
        assert all(again[kind].cpu >= used[kind].cpu for kind in used)


def test_without_a_jvm_there_is_only_the_driver():
    used = Processes().look()
    assert used["jvm"].count == 0
    assert used["driver"].cpu > 0
