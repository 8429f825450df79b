"""Figures as people read them."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.formats import count, size, span
from headrace.cli.terminal import CELL_WIDTH, grid, text


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (34_500_000, "34.5 MB"),
        (2.5e18, "2,500 PB"),
    ],
)
def test_sizes_have_three_digits(size_bytes: float, shown: str) -> None:
    assert size(size_bytes) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0 s"), (3.21, "3.2 s"), (245, "4:05"), (7445, "2:04:05"), (266_400, "3 d 2 h")],
)
def test_spans_are_as_long_as_they_need(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


@given(st.integers(0, 10**18))
def test_a_count_keeps_every_digit(number: int) -> None:
    assert int(count(number).replace(",", "")) == number


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_a_cell_is_one_line(value: object) -> None:
    assert "\n" not in text(value)
    assert "\r" not in text(value)


@given(
    widths=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    screen=st.integers(2 * CELL_WIDTH + 3, 200),
    pinned=st.integers(0, 1),
)
def test_a_grid_fits_the_screen(widths: list[int], screen: int, pinned: int) -> None:
    from rich.console import Console

    console = Console(width=screen, record=True, file=io.StringIO())
    headings = [f"{n}" * min(width, 20) for n, width in enumerate(widths)]
    row = ["x" * width for width in widths]
    console.print(grid(headings, [row], width=screen, pinned=min(pinned, len(widths) - 1)))
    lines = console.export_text().splitlines()
    hidden = "--json shows all" in lines[-1]
    assert len(lines) == (4 if hidden else 3)
    if not hidden:
        assert all("x" * min(width, CELL_WIDTH - 1) in lines[2] for width in widths)


def test_control_characters_of_a_record_do_not_reach_the_terminal() -> None:
    from rich.console import Console

    console = Console(file=(output := io.StringIO()), width=100)
    signs = "\x1b]0;title\x07\x9b31m\u202e\n\r"
    console.print(grid([f"a{signs}\nstring"], [[signs], [{"b": signs}]]))
    shown = output.getvalue()
    assert not set("\x1b\x07\x9b\u202e\r") & set(shown)
    assert "\\x1b]0;title\\x07\\x9b31m\\u202e\\n\\r" in shown
