"""How a server proves who it is, and asks clients to."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Tls"]


@dataclass(frozen=True)
class Tls:
    """The PEM files of a server that speaks TLS, 1.2 or later.

    Args:
        certificate: The server's certificate, followed by those that lead to its root.
        key: Its private key; None: in the file of the certificate.
        key_password: The key's password.
        client_ca: The certificates of whom the server trusts to sign its clients'. Clients
            have to show one then; None asks them for none.
        settings: What the settings that name these files begin with, for errors.
    """

    certificate: Path
    key: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    client_ca: Path | None = None
    settings: str = "registry"

    def context(self) -> ssl.SSLContext:
        """Return what the server needs. Raises ConfigError when a file does not do."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self.certificate, self.key, self.key_password or "")
        except (OSError, ssl.SSLError) as error:
            files = " with ".join(str(file) for file in (self.certificate, self.key) if file)
            raise ConfigError(
                problem=f"{files} cannot be used as certificate and key: {_told(error)}.",
                fix="Name PEM files of a certificate and of its key, and the key's password.",
                field=f"{self.settings}_ssl_certificate",
            ) from None
        if self.client_ca is None:
            return context
        try:
            context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                problem=f"{self.client_ca} holds no certificates: {_told(error)}.",
                fix="Name a PEM file of the certificates that sign those of the clients.",
                field=f"{self.settings}_ssl_client_ca",
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def _told(error: OSError) -> str:
    return error.strerror or type(error).__name__
