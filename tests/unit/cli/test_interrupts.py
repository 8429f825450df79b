"""Ctrl-C and SIGTERM."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from headrace.cli.interrupts import Interrupts
from headrace.cli.progress import Scoreboard


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop(number: signal.Signals) -> None:
    asked = threading.Event()
    with Interrupts(began=lambda: True, stop=asked.set) as interrupts:
        signal.raise_signal(number)
        assert asked.wait(10)
        assert interrupts.stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_any_task_began_a_signal_ends_the_command(number: signal.Signals) -> None:
    asked = threading.Event()
    interrupts = Interrupts(began=lambda: False, stop=asked.set)
    with pytest.raises(KeyboardInterrupt), interrupts:
        signal.raise_signal(number)
    assert interrupts.stopped
    assert not asked.is_set()


def test_a_second_sigterm_changes_nothing() -> None:
    asked: list[int] = []
    with Interrupts(began=lambda: True, stop=lambda: asked.append(1)):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    for thread in threading.enumerate():
        if thread.name == "headrace-stop":
            thread.join()
    assert asked == [1]


def test_ctrl_c_is_taken_back_from_who_took_it() -> None:
    asked = threading.Event()
    with Interrupts(began=lambda: True, stop=asked.set) as interrupts:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupts.take_back()
        signal.raise_signal(signal.SIGINT)
        assert asked.wait(10)


def test_the_signals_are_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts(began=lambda: True, stop=lambda: None):
        pass
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_the_second_ctrl_c_ends_at_once() -> None:
    program = """
import signal, threading
from headrace.cli.interrupts import Interrupts
with Interrupts(began=lambda: True, stop=lambda: None):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    threading.Event().wait(60)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=50)
    assert ended.returncode == 130


@pytest.mark.timeout(30)
def test_a_signal_while_the_scores_change_asks_to_stop() -> None:
    board, asked = Scoreboard(time.monotonic), threading.Event()
    with Interrupts(began=lambda: not board.scores(), stop=asked.set), board._lock:
        signal.raise_signal(signal.SIGTERM)
        assert asked.wait(10)
