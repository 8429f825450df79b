"""Tells requests that a browser sends for a page of another site (CSRF, DNS rebinding)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.sdk.hosts import is_own

if TYPE_CHECKING:
    from starlette.datastructures import Headers

__all__ = ["is_cross_site", "names_other_host"]

_SAME = {"same-origin", "none"}
"""``none`` is what the user typed or kept as a bookmark."""


def is_cross_site(headers: Headers) -> bool:
    """Return whether a browser says that a page of another origin sends a request.

    Browsers add what says so, which no page can change; clients that are no browsers send
    none of it. ``Referer`` counts only where there is no ``Origin``, as with GET. Pages that
    this machine's own servers give, such as a development server's, may use a server of this
    machine, unless the browser says that they are of another site.
    See https://cheatsheetseries.owasp.org/cheatsheets/Cross-Site_Request_Forgery_Prevention_Cheat_Sheet.html
    """
    if headers.get("sec-fetch-site", "none").lower() not in _SAME:
        return True
    source = headers.get("origin", headers.get("referer"))
    if source is None:
        return False
    sender, host = _netloc(source), headers.get("host", "").lower()
    return sender != host and not (is_own(_name(sender)) and is_own(_name(host)))


def names_other_host(headers: Headers) -> bool:
    """Return whether a request names another host than this machine as the server's or page's.

    A page can make its own name lead here (DNS rebinding).
    """
    hosts = [headers.get("host", "localhost")]
    origin = headers.get("origin")
    if origin is not None:
        hosts.append(_netloc(origin))
    return not all(is_own(_name(host)) for host in hosts)


def _netloc(address: str) -> str:
    """Return ``host:port`` of an address; nothing for what has none, such as ``null``."""
    try:
        return urlsplit(address).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def _name(netloc: str) -> str:
    """Return the host of ``host:port``; nothing for what is none."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""
