"""One use of the command line: its global options, and what they open."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.cli.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    import typer

    from headrace.bootstrap import Runtime
    from headrace.settings import Settings


@dataclass
class Invocation:
    """The global options; filled by ``take`` before the command is called.

    Args:
        as_json: Whether the command's output, errors included, is JSON.
        config: The settings file.
        home: The folder of state.
        verbose: Whether tracebacks and the log are shown.
        quiet: Whether only errors and asked-for output are shown.
        color: Whether colours may be used.
    """

    as_json: bool = False
    config: Path | None = None
    home: Path | None = None
    verbose: bool = False
    quiet: bool = False
    color: bool = True

    def take(
        self,
        *,
        config: Path | None,
        home: Path | None,
        verbose: bool,
        quiet: bool,
        color: bool,
    ) -> None:
        """Set the global options, once they are parsed."""
        self.config, self.home = config, home
        self.verbose, self.quiet, self.color = verbose, quiet, color

    @cached_property
    def terminal(self) -> Terminal:
        """Return where output goes."""
        return Terminal(as_json=self.as_json, quiet=self.quiet, color=self.color)

    @cached_property
    def settings(self) -> Settings:
        """Return the settings; the first use reads them and opens the log."""
        from headrace.cli.logs import LOGS, configure_logs
        from headrace.settings import load_settings

        values = {} if self.home is None else {"home": self.home}
        settings = load_settings(self.config, **values)
        configure_logs(settings.home / LOGS, self.terminal, verbose=self.verbose)
        return settings

    def runtime(self, *, short_lived: bool = False) -> Runtime:
        """Return the runtime, to be used in a ``with``; nothing is started yet."""
        settings = self.settings
        from headrace.bootstrap import Runtime

        return Runtime(settings, short_lived=short_lived)


def invocation_of(context: typer.Context) -> Invocation:
    """Return the invocation that a command belongs to."""
    return context.ensure_object(Invocation)
