"""How often captures append that share a host."""

from dataclasses import dataclass

from headrace.capture.capture_thread import Tempo


@dataclass
class Clock:
    """A time that is set by hand."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_more_captures_are_busy_the_longer_each_gathers() -> None:
    clock = Clock()
    tempo = Tempo(per_second=25, longest=2, clock=clock)
    lingers = []
    for number in range(100):
        tempo.appended(f"c{number}")
        lingers.append(tempo.linger)
    assert lingers[0] == 1 / 25
    assert lingers[24] == 1  # 25 captures, once a second each
    assert lingers[-1] == 2


def test_a_capture_that_is_alone_again_does_not_wait_for_the_others() -> None:
    clock = Clock()
    tempo = Tempo(clock=clock)
    for number in range(50):
        tempo.appended(f"c{number}")
    clock.now = 60
    tempo.appended("c0")
    assert tempo.linger == 1 / 25
