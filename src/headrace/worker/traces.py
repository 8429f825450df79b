"""Errors as the texts that are stored and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import HeadraceError

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.worker.restarts import Verdict


def as_it_is(error: Exception) -> Exception:
    """Return the error."""
    return error


def trace_of(error: Exception) -> str:
    """Return why something failed: ours say so themselves, of others the kind is named."""
    if isinstance(error, HeadraceError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def traced(
    error: Exception | None, verdict: Verdict, now: datetime
) -> tuple[str | None, datetime | None]:
    """Return what is stored of a failure: why it came, and when the next try comes."""
    if error is None:
        return None, None
    if verdict.wait is None:
        return "\n".join(filter(None, [trace_of(error), verdict.told])), None
    later = now + verdict.wait
    told = f"{verdict.told} comes at {later:%Y-%m-%d %H:%M:%S %Z}."
    return f"{trace_of(error)}\n{told}", later
