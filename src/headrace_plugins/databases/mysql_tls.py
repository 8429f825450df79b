"""TLS for MySQL and MariaDB, from the options of a URL."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES = {
    "ssl_ca": "ca",
    "ssl_cert": "cert",
    "ssl_key": "key",
    "ssl_mode": "mode",
    "sslmode": "mode",
}
_MODES = {
    **dict.fromkeys(("disable", "disabled", "false"), "disabled"),
    **dict.fromkeys(("prefer", "preferred"), "preferred"),
    **dict.fromkeys(("require", "required", "trust", "true"), "required"),
    "verify-ca": "verify-ca",
    **dict.fromkeys(("verify-identity", "verify-full"), "verify-identity"),
}
"""The modes of MySQL and of MariaDB's drivers."""


def tls_of(options: Mapping[str, str]) -> tuple[ssl.SSLContext | None, bool]:
    """Return the TLS context of a connection, or None, and whether TLS is required."""
    names = {_NAMES.get(name.lower().replace("-", "_"), name): name for name in options}
    given = {name: options[own] for name, own in names.items()}
    ca, cert = given.get("ca"), given.get("cert")
    default = "verify-ca" if ca else "required" if cert else "preferred"
    text = given.get("mode", default)
    mode = _MODES.get(text.lower().replace("_", "-"))
    unknown = given.keys() - _NAMES.values()
    if unknown or mode is None:
        wrong = min(unknown) if unknown else f"{names['mode']}={text}"
        raise ConfigError(
            problem=f"Unknown option {wrong!r} in the URL of a MySQL server.",
            fix="Use sslMode (disabled, preferred, required, verify-ca, verify-identity), "
            "ssl_ca, ssl_cert and ssl_key.",
            field="connection.url",
        )
    if mode == "disabled":
        return None, False
    try:
        if mode.startswith("verify"):
            context = ssl.create_default_context(cafile=ca)
            context.check_hostname = mode == "verify-identity"
        else:
            # Nothing is verified, so do not load the system's certificates: that takes 30 ms
            # of CPU, and each batch of a sink opens new connections.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert:
            context.load_cert_chain(cert, given.get("key"))
    except OSError as error:
        raise ConfigError(
            problem=f"A file in the URL's TLS options cannot be used: {error}.",
            fix="Set paths of PEM files that the worker can read.",
            field="connection.url",
        ) from error
    return context, mode != "preferred"
