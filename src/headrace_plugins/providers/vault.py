"""Values from HashiCorp's Vault, or from OpenBao."""

from __future__ import annotations

import importlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    ConfigProvider,
    RetriableError,
    SetupError,
)
from headrace.sdk.config import (
    Password,
    Range,
    Settings,
    setting,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_ADDRESS = "address"
_TOKEN = "token"  # noqa: S105 - the name of a key
_TOKEN_FILE = "token.file"  # noqa: S105 - the name of a key
_ROLE = "approle.role.id"
_SECRET_FILE = "approle.secret.id.file"  # noqa: S105 - the name of a key
_NAMESPACE = "namespace"
_CA = "ca.file"
_TIMEOUT = "timeout.seconds"


class VaultProviderSettings(Settings):
    """The settings of ``VaultProvider``."""

    address: str | None = setting(
        "Where it is, as https://vault.example.com:8200; else VAULT_ADDR says so.", default=None
    )
    token_file: str | None = setting(
        "A file with the token to show; it is read each time.", default=None
    )
    token: Password | None = setting(
        "The token itself; else VAULT_TOKEN says so.", default=None
    )
    approle_role_id: str | None = setting(
        "The id of an AppRole to log in with, instead of a token.", default=None
    )
    approle_secret_id_file: str | None = setting(
        "A file with that role's secret id.", default=None
    )
    namespace: str | None = setting("The namespace of the secrets.", default=None)
    ca_file: str | None = setting(
        "A PEM file of the certificates to trust; else the system's.", default=None
    )
    timeout_seconds: int = setting(
        "How long to wait for an answer, in seconds.", default=10, validator=Range(at_least=1)
    )


class VaultProvider(ConfigProvider):
    """A key of a secret of Vault's KV engine, version 2: `${vault:mount/path:key}`.

    The newest version of the secret counts. It needs the package's extra `vault`.
    """

    settings: VaultProviderSettings

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        mount, _, inner = path.strip("/").partition("/")
        if not mount or not inner:
            problem = f"{path!r} names no secret."
            raise ConfigError(problem, fix="Write ${vault:mount/path:key}.")
        # As people copy it from Vault's own HTTP API.
        inner = inner.removeprefix("data/")
        held = self._secret(mount, inner)
        return {key: str(held[key]) for key in keys if held.get(key) is not None}

    def _secret(self, mount: str, inner: str) -> Mapping[str, Any]:
        wrong = self._hvac.exceptions
        where = f"The secret {inner} of {mount}"
        try:
            answer = self._client().secrets.kv.v2.read_secret_version(
                inner, mount_point=mount, raise_on_deleted_version=True
            )
        except wrong.InvalidPath:
            problem = f"{where} is not there."
            raise ConfigError(problem, fix="Correct the path.") from None
        except (wrong.Forbidden, wrong.Unauthorized, wrong.InvalidRequest):
            problem = f"{where} may not be read."
            fix = "Correct the token, or the policy that is attached to it."
            raise ConfigError(problem, fix=fix) from None
        except (wrong.VaultError, OSError) as error:  # requests' errors are of the latter
            # What it says might hold what was sent.
            problem = f"Vault does not answer: {type(error).__name__}."
            raise RetriableError(problem, fix="See that it runs and is unsealed.") from None
        held: Mapping[str, Any] = answer["data"]["data"]
        return held

    def _client(self) -> Any:
        client = self._hvac.Client(
            url=self.settings.address,
            token=self._token(),
            namespace=self.settings.namespace,
            verify=self.settings.ca_file or True,
            timeout=self.settings.timeout_seconds,
        )
        if (role := self.settings.approle_role_id) is not None:
            file = self.settings.approle_secret_id_file
            client.auth.approle.login(role, None if file is None else _text(file))
        return client

    def _token(self) -> str | None:
        if (file := self.settings.token_file) is not None:
            return _text(file)
        token = self.settings.token
        return None if token is None else token.value

    @cached_property
    def _hvac(self) -> Any:
        try:
            return importlib.import_module("hvac")
        except ImportError:
            problem = "The package hvac, which speaks to Vault, is not installed."
            raise SetupError(problem, fix="pip install 'headrace[vault]'") from None


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        problem = f"{file} cannot be read."
        raise ConfigError(problem, fix="Correct the provider's settings.") from None
