"""A console on which external names and texts cannot control the terminal."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typing_extensions import override

from headrace.cli.escapes import escaped


class EscapingConsole(Console):
    """Escapes control characters of everything that is printed, but not its own."""

    @override
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = map(escaped, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)
