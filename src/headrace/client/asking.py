"""Requests about one connector, and what is said of a name that the server does not know."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.client.errors import NotThereError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.client.http import Http

__all__ = ["Asking", "path_of"]

_SHOWN = 10


class Asking:
    """The part of a client that knows which connectors there are."""

    http: Http

    def names(self) -> list[str]:
        """Return the names of all connectors, sorted."""
        return sorted(self.http.send("GET", "/connectors"))

    def not_there(self, name: str) -> NotThereError:
        """Return the error for a name that the server does not know."""
        known = self.names()
        close = get_close_matches(name, known, n=3, cutoff=0.5)
        fix = f"Did you mean {' or '.join(close)}?" if close else _there_are(known)
        return NotThereError(f"There is no connector {name!r}.", field="name", fix=fix)

    def of_connector(
        self,
        name: str,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str | list[str]] | None = None,
    ) -> Any:
        """Send a request about a connector; names near one that is not there are told."""
        try:
            return self.http.send(method, path, body=body, query=query)
        except NotThereError:
            if name in self.names():
                raise
            raise self.not_there(name) from None


def path_of(name: str) -> str:
    """Return the path of a connector."""
    return f"/connectors/{quote(name, safe='')}"


def _there_are(known: Sequence[str]) -> str:
    if not known:
        return "There is no connector yet; make one with: headrace connector create."
    shown = ", ".join(known[:_SHOWN])
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"There are: {shown}{more}."
