"""Logging: JSON lines in a file, and short lines for important records on the terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from typing_extensions import override

from headrace.permissions import FILE, make_private_folder, make_private_home, narrow
from headrace.sdk.config.values import HIDDEN
from headrace.sdk.errors import SetupError
from headrace.sdk.sensitive import is_sensitive, masked

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from io import TextIOWrapper

    from headrace.cli.terminal import Terminal

LOGS = "logs"
"""The folder in the home folder for all logs."""
LOG_FILE = "headrace.log"

log = structlog.get_logger("headrace.cli")


def configure_logs(
    folder: Path,
    terminal: Terminal,
    *,
    verbose: bool = False,
    redact: Callable[[str], str] = str,
    max_bytes: int = 10_000_000,
    backups: int = 5,
) -> None:
    """Send all logging of this process to the folder's file and the terminal.

    Called once, by the command line. The file gets INFO and above, the terminal WARNING and
    above, or INFO and above with ``verbose``. Python's warnings go to the file only. A line
    about a connector or a task has the fields ``connector`` and ``task``. ``redact`` removes
    known secrets from every text. The file is rotated at ``max_bytes``, and ``backups`` rotated
    files are retained.
    """
    try:
        opened = make_private_home(folder.parent)
        make_private_folder(folder)
        opened = bool(narrow([folder, *folder.glob(f"{LOG_FILE}*")])) or opened
        file = _PrivateFileHandler(
            folder / LOG_FILE, maxBytes=max_bytes, backupCount=backups, encoding="utf-8"
        )
        file.terminal = terminal
    except OSError as error:
        problem = f"Cannot write logs to {folder}: {error.strerror}."
        fix = "Name a folder that you may write to with --home."
        raise SetupError(problem, field="home", fix=fix) from error
    before: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        partial(hide_secrets, redact=redact),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *before,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    file.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[remove_meta, structlog.processors.JSONRenderer(default=str)],
        )
    )
    short = TerminalHandler(terminal, logging.INFO if verbose else logging.WARNING)
    short.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before, processors=[remove_meta, _short]
        )
    )
    logging.basicConfig(handlers=[file, short], level=logging.INFO, force=True)
    logging.captureWarnings(capture=True)
    # py4j logs each lost connection, partly by the root logger; its callers get the error.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    if opened:
        log.warning("the home folder was open to other users", now_private=str(folder.parent))


class _PrivateFileHandler(RotatingFileHandler):
    """Writes log files that only their owner may read, because errors may contain data.

    A failure to write, such as on a full disk, is reported once until a write succeeds again.
    """

    terminal: Terminal | None = None
    _failed = _reported = False

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._failed = False
        super().emit(record)
        self._reported = self._failed

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        self._failed = True
        error = sys.exc_info()[1]
        if self._reported or self.terminal is None:
            return
        why = error.strerror if isinstance(error, OSError) else None
        line = f"warning: the log cannot be written to {self.baseFilename}: {why or error}"
        with suppress(OSError):
            self.terminal.err.print(line, soft_wrap=True)

    @override
    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(FILE)
        return super()._open()


def hide_secrets(
    _logger: object,
    _method: str,
    event: MutableMapping[str, Any],
    redact: Callable[[str], str] = str,
) -> MutableMapping[str, Any]:
    """Hide values of sensitive keys, passwords inside texts, and known secrets."""
    for key, value in event.items():
        event[key] = HIDDEN if is_sensitive(key) else _without_secrets(value, redact)
    return event


def _without_secrets(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(masked(value))
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if is_sensitive(str(key)) else _without_secrets(each, redact)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(each, redact) for each in value]
    return value


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "/py4j/" not in record.pathname


class TerminalHandler(logging.Handler):
    """Prints a log record as one short line on stderr."""

    def __init__(self, terminal: Terminal, level: int) -> None:
        """Print records of ``level`` and above."""
        super().__init__(level)
        self._terminal = terminal

    @override
    def emit(self, record: logging.LogRecord) -> None:
        # Commands print their own errors, and Python's warnings are for developers.
        if record.name in {"headrace.cli", "py.warnings"}:
            return
        try:
            self._terminal.err.print(self.format(record), soft_wrap=True)
        except Exception:  # noqa: BLE001 - a failed log line must not end the logged work
            self.handleError(record)


def _short(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    level = event.pop("level", "info")
    text = str(event.pop("event", "")).partition("\n")[0]
    exception = str(event.pop("exception", "")).strip().rpartition("\n")[2]
    for hidden in ("timestamp", "logger"):
        event.pop(hidden, None)
    details = [f"{key}={value}" for key, value in event.items() if value is not None]
    tail = f" ({', '.join(details)})" if details else ""
    line = f"{level}: {text}{tail}{': ' + exception if exception else ''}"
    # Non-printable characters could start a new line or control the terminal.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
