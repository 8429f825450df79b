"""The log: JSON lines in a file, and what matters, in short, on the terminal."""

from __future__ import annotations

import logging
import re
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any

import structlog
from typing_extensions import override

from headrace.sdk import SetupError

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

    from headrace.cli.terminal import Terminal

LOGS = "logs"
"""The folder below the home folder that holds all logs."""
LOG_FILE = "headrace.log"
MAX_SIZE_BYTES = 10_000_000
KEPT_FILES = 5
HIDDEN = "[hidden]"

log = structlog.get_logger("headrace.cli")

_SECRET_KEY = re.compile(
    r"passw|secret|token|credential|api[._-]?key|access[._-]?key", re.IGNORECASE
)
# password=x in a JDBC address or a list of options, and user:x@ in any address
_SECRET_TEXT = re.compile(
    r"((?:passw\w*|secret|token|access[._-]?key)\w*[\"']?\s*[=:]\s*[\"']?)[^\s&;,\"'}]+"
    r"|(://[^/\s:@]+:)[^/\s@]+(?=@)",
    re.IGNORECASE,
)


def configure_logs(folder: Path, terminal: Terminal, *, verbose: bool = False) -> None:
    """Send all logging of this process to the folder's file and the terminal.

    Called once, by the command line. The file takes INFO and above, the terminal
    WARNING and above, or INFO when verbose. Python's warnings go to the file only.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = RotatingFileHandler(
            folder / LOG_FILE, maxBytes=MAX_SIZE_BYTES, backupCount=KEPT_FILES, encoding="utf-8"
        )
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
        hide_secrets,
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
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs each lost connection


def hide_secrets(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Hide values whose key sounds secret, and passwords inside texts."""
    for key, value in event.items():
        if _SECRET_KEY.search(key):
            event[key] = HIDDEN
        elif isinstance(value, str):
            event[key] = _SECRET_TEXT.sub(lambda m: f"{m[1] or m[2]}{HIDDEN}", value)
        elif isinstance(value, dict):
            event[key] = hide_secrets(_logger, _method, dict(value))
    return event


class TerminalHandler(logging.Handler):
    """Prints a log record as one short line on stderr."""

    def __init__(self, terminal: Terminal, level: int) -> None:
        """Print records of ``level`` and above."""
        super().__init__(level)
        self._terminal = terminal

    @override
    def emit(self, record: logging.LogRecord) -> None:
        # The command line itself shows what it logs, and Python's warnings are for authors.
        if record.name in {"headrace.cli", "py.warnings"}:
            return
        try:
            self._terminal.err.print(self.format(record), soft_wrap=True)
        except Exception:  # noqa: BLE001 - a log line must never end the work it tells of
            self.handleError(record)


def _short(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    level = event.pop("level", "info")
    text = str(event.pop("event", "")).partition("\n")[0]
    exception = str(event.pop("exception", "")).strip().rpartition("\n")[2]
    for hidden in ("timestamp", "logger"):
        event.pop(hidden, None)
    details = [f"{key}={value}" for key, value in event.items() if value is not None]
    tail = f" ({', '.join(details)})" if details else ""
    return f"{level}: {text}{tail}{': ' + exception if exception else ''}"
