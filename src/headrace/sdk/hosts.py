"""Distinguishes this machine's own addresses from those that others can reach."""

from __future__ import annotations

import ipaddress


def is_own(host: str) -> bool:
    """Return whether only this machine reaches a host: localhost, or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
