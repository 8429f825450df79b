"""Distinguishes loopback addresses from addresses that other machines can reach."""

from __future__ import annotations

import ipaddress


def is_own(host: str) -> bool:
    """Return whether only this machine can reach a host: localhost or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
