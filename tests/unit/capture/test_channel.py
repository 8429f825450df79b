"""Errors and lines survive the way between a worker and its hosts."""

import logging
import socket
import subprocess
import sys
from datetime import timedelta

import pytest

from headrace.capture.process import Channel, Voice, error_from_json, error_to_json
from headrace.model import ToleranceExceededError
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError, RetriableError, SourceError
from headrace.sdk.errors import StaleEpochError


@pytest.mark.parametrize(
    "error",
    [
        StaleEpochError(),
        ConfigError("No.", fix="Yes.", field="a.b"),
        ConfigErrors([ConfigError("No.", field="a"), ConfigError("Nor this.", field="b")]),
        RetriableError("Busy.", after=timedelta(seconds=2)),
        ToleranceExceededError(stage="s", plugin="p", exception="e", message="m", record="r"),
    ],
)
def test_an_error_arrives_as_it_was(error: HeadraceError) -> None:
    arrived = error_from_json(error_to_json(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert arrived.to_json() == error.to_json()


def test_a_foreign_error_arrives_as_a_source_error() -> None:
    arrived = error_from_json(error_to_json(KeyError("x")))
    assert isinstance(arrived, SourceError)
    assert "KeyError: 'x'" in str(arrived)


def test_messages_arrive_whole_until_the_other_end_is_gone() -> None:
    ours, theirs = (Channel(end) for end in socket.socketpair())
    for number in range(3):
        theirs.send({"type": "log", "n": number, "text": "two\nlines"})
    theirs.hang_up()
    assert [m["n"] for m in ours.messages()] == [0, 1, 2]
    ours.hang_up()
    with pytest.raises(OSError, match=r"."):
        ours.send({"type": "late"})


def test_a_line_that_is_cut_is_the_end() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b'{"type": "idle"}\n{"type": "st')
    theirs.close()
    channel = Channel(ours)
    assert list(channel.messages()) == [{"type": "idle"}]
    channel.hang_up()


def test_a_voice_hides_secrets_and_says_whose_line_it_is() -> None:
    ours, theirs = (Channel(end) for end in socket.socketpair())
    voice = Voice(theirs)
    voice.speak_for("c-0")
    voice.hide("hunter22")
    voice.hide("a")
    voice.say(logging.getLevelName(logging.INFO).lower(), "x", "a hunter22 came")
    theirs.hang_up()
    (line,) = ours.messages()
    assert (line["capture"], line["text"]) == ("c-0", "a [hidden] came")
    ours.hang_up()


LOGS = """
import logging, socket, sys, structlog
from headrace.capture.process import Channel
from headrace.capture.process import Voice

log = structlog.get_logger("plugin")
Voice(Channel(socket.socket(fileno=int(sys.argv[1])))).take_over()
log.debug("never mind")
log.info("begun")
log.warning("a file is gone, 100% of it", file="a", position=3)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("failed")
logging.getLogger("library").warning("half of %s", "it")
print("printed")
"""


def test_what_a_plugin_logs_keeps_its_level_and_its_logger() -> None:
    ours, theirs = socket.socketpair()
    descriptor = theirs.fileno()
    subprocess.run(
        [sys.executable, "-c", LOGS, str(descriptor)], pass_fds=[descriptor], check=True
    )
    theirs.close()
    channel = Channel(ours)
    told = [(each["level"], each["logger"], each["text"]) for each in channel.messages()]
    channel.hang_up()
    failed = told.pop(2)
    assert failed[:2] == ("error", "plugin")
    assert failed[2].startswith("failed\nTraceback")
    assert told == [
        ("info", "plugin", "begun"),
        ("warning", "plugin", "a file is gone, 100% of it (file=a, position=3)"),
        ("warning", "library", "half of it"),
        ("info", "stdout", "printed"),
    ]
