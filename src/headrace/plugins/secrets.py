"""The secrets that a process has met, so that no text shows them."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from headrace.sdk import ConfigErrors, HeadraceError
from headrace.sdk.config.values import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HIDDEN", "Secrets"]

_SHORTEST = 4
"""Shorter texts are everywhere; hiding them would reveal more than it hides."""
_MOST = 10_000
_PLAIN = frozenset({"true", "false", "null", "none"})


Known = TypeVar("Known", bound=HeadraceError)


class Secrets:
    """Secrets that must not show. Any thread may use it."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, secrets: Iterable[str]) -> None:
        """Hide these from now on; the oldest of very many are forgotten."""
        with self._lock:
            for each in secrets:
                text = each.strip()
                if len(text) >= _SHORTEST and text.lower() not in _PLAIN:
                    self._known[text] = None
                    self._known.move_to_end(text)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)

    def redacted(self, text: str) -> str:
        """Return the text with `[hidden]` in place of every secret."""
        with self._lock:
            found = [each for each in self._known if each in text]
        for each in sorted(found, key=len, reverse=True):  # one may be a part of another
            text = text.replace(each, HIDDEN)
        return text

    def redacted_error(self, error: Exception) -> Exception:
        """Return an error whose text shows no secret; the same one if it shows none."""
        if isinstance(error, ConfigErrors):
            found = [self.clean(each) for each in error.errors]
            return error if found == list(error.errors) else ConfigErrors(found)
        if isinstance(error, HeadraceError):
            return self.clean(error)
        text = str(error)
        shown = self.redacted(text)
        return error if shown == text else HeadraceError(f"{type(error).__name__}: {shown}")

    def clean(self, error: Known) -> Known:
        """Return one of our errors, of the same class, whose text shows no secret."""
        problem, fix = self.redacted(error.problem), self.redacted(error.fix)
        if (problem, fix) == (error.problem, error.fix):
            return error
        found = copy.copy(error)
        found.problem, found.fix, found.args = problem, fix, (problem,)
        return found
