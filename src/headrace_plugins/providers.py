"""The built-in configuration providers."""

from __future__ import annotations

import importlib
import os
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import javaproperties
from typing_extensions import override

from headrace.sdk import ConfigError, ConfigProvider, RetriableError
from headrace.sdk.config import NullOr, Password, Range, Regex, Settings, setting
from headrace.sdk.errors import SetupError
from headrace.sdk.worker_plugins import allowed_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class _FilesSettings(Settings):
    """The settings of providers that read files."""

    allowed_paths: tuple[str, ...] = setting(
        "The files and folders that may be read, separated by commas. By default, a server "
        "may read files below `secrets` in its home folder and below /run/secrets, and other "
        "commands may read all files that their user may read.",
        default=(),
    )


class _Files(ConfigProvider):
    """A provider that reads files in the allowed folders."""

    settings: _FilesSettings

    def _file(self, path: str) -> Path:
        return allowed_path(path, self.settings.allowed_paths, self.context)


class FileProvider(_Files):
    """Reads a key from a Java properties file: `${file:/path/to/file.properties:key}`."""

    aliases = (
        "FileConfigProvider",
        "org.apache.kafka.common.config.provider.FileConfigProvider",
    )

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        file = self._file(path)
        try:
            found = javaproperties.loads(_read(file))
        except javaproperties.InvalidUEscapeError:
            problem = f"{path} contains an invalid escape sequence for Java properties."
            raise ConfigError(problem, fix="Write \\u with four hexadecimal digits.") from None
        return {key: found[key] for key in keys if key in found}


class DirectoryProvider(_Files):
    """Reads a whole file in a folder: `${dir:/path/to/folder:file}`, for mounted secrets.

    A line break at the end of the file is removed.
    """

    aliases = (
        "DirectoryConfigProvider",
        "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    )

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        found = {}
        for key in keys:
            if not key or "/" in key:
                problem = f"Invalid file name {key!r} in {path}."
                raise ConfigError(problem, fix="Write ${dir:/path/to/folder:file}.")
            file = self._file(f"{path}/{key}")
            if file.is_file():
                found[key] = _read(file).removesuffix("\n").removesuffix("\r")
        return found


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}."
        raise ConfigError(problem, fix="Check the path and the permissions.") from None
    except UnicodeDecodeError:
        problem = f"{file} is not UTF-8 text."
        raise ConfigError(problem, fix="Save the file as UTF-8.") from None


_PATTERN = "allowlist.pattern"
_OWN = ("HEADRACE_", "PGPASS", "AWS_", "AZURE_", "GOOGLE_", "VAULT_", "GITHUB_", "SSH_")
"""Prefixes of variables for the process itself, such as the store's password."""
_MEANT = "CONNECT_"
"""The prefix of variables for configurations, also of those that other users write."""


class EnvironmentProviderSettings(Settings):
    """The settings of ``EnvironmentProvider``."""

    allowlist_pattern: str | None = setting(
        "A regular expression that must match the whole name of a variable. By default, a "
        "server that requires tokens or accepts remote connections allows variables that begin "
        f"with {_MEANT}; other servers allow all except those that begin with "
        f"{', '.join(_OWN)}; other commands allow all except those that begin with {_OWN[0]}.",
        default=None,
        validator=NullOr(Regex()),
    )


class EnvironmentProvider(ConfigProvider):
    """Reads an environment variable: `${env:NAME}`."""

    aliases = (
        "EnvVarConfigProvider",
        "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    )

    settings: EnvironmentProviderSettings

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if path:
            problem = f"Environment variables do not have a path, got {path!r}."
            raise ConfigError(problem, fix="Write ${env:NAME}.")
        for key in keys:
            if not self._may_read(key):
                problem = f"The environment variable {key} is not allowed in references."
                fix = (
                    f"Rename it to {_MEANT}..., or allow it with the key {_PATTERN} of the "
                    "setting config_providers.env."
                )
                raise ConfigError(problem, fix=fix)
        there = os.environ  # noqa: TID251 - the purpose of this provider
        return {key: there[key] for key in keys if key in there}

    def _may_read(self, key: str) -> bool:
        pattern = self.settings.allowlist_pattern
        if pattern is not None:
            return re.fullmatch(pattern, key) is not None
        if self.context.shared:
            return key.startswith(_MEANT)
        return not key.startswith(_OWN if self.context.serving else _OWN[0])


class VaultProviderSettings(Settings):
    """The settings of ``VaultProvider``."""

    address: str | None = setting(
        "Vault's URL, such as https://vault.example.com:8200; by default VAULT_ADDR.",
        default=None,
    )
    token_file: str | None = setting(
        "A file with the token; it is read for each request.", default=None
    )
    token: Password | None = setting("The token; by default VAULT_TOKEN.", default=None)
    approle_role_id: str | None = setting(
        "The id of an AppRole to log in with, instead of a token.", default=None
    )
    approle_secret_id_file: str | None = setting(
        "A file with the AppRole's secret id.", default=None
    )
    namespace: str | None = setting("The namespace of the secrets.", default=None)
    ca_file: str | None = setting(
        "A PEM file of trusted CA certificates; by default the system's.", default=None
    )
    timeout_seconds: int = setting(
        "The timeout of a request, in seconds.", default=10, validator=Range(at_least=1)
    )


class VaultProvider(ConfigProvider):
    """Reads a key of a secret in Vault's KV engine, version 2: `${vault:mount/path:key}`.

    Uses the latest version of the secret. Needs the package's extra `vault`.
    """

    settings: VaultProviderSettings

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        mount, _, inner = path.strip("/").partition("/")
        if not mount or not inner:
            problem = f"Invalid path of a secret: {path!r}."
            raise ConfigError(problem, fix="Write ${vault:mount/path:key}.")
        # Paths copied from Vault's HTTP API have this prefix.
        inner = inner.removeprefix("data/")
        held = self._secret(mount, inner)
        return {key: str(held[key]) for key in keys if held.get(key) is not None}

    def _secret(self, mount: str, inner: str) -> Mapping[str, Any]:
        wrong = self._hvac.exceptions
        where = f"The secret {inner} in {mount}"
        try:
            answer = self._client().secrets.kv.v2.read_secret_version(
                inner, mount_point=mount, raise_on_deleted_version=True
            )
        except wrong.InvalidPath:
            problem = f"{where} does not exist."
            raise ConfigError(problem, fix="Correct the path.") from None
        except (wrong.Forbidden, wrong.Unauthorized, wrong.InvalidRequest):
            problem = f"{where} cannot be read: permission denied."
            fix = "Check the token and its policy."
            raise ConfigError(problem, fix=fix) from None
        except (wrong.VaultError, OSError) as error:  # errors of requests are OSErrors
            # Without the error's text, which may contain what was sent.
            problem = f"Vault is not available: {type(error).__name__}."
            raise RetriableError(problem, fix="Check that it runs and is unsealed.") from None
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
            client.auth.approle.login(role, None if file is None else _read(Path(file)).strip())
        return client

    def _token(self) -> str | None:
        if (file := self.settings.token_file) is not None:
            return _read(Path(file)).strip()
        token = self.settings.token
        return None if token is None else token.value

    @cached_property
    def _hvac(self) -> Any:
        try:
            return importlib.import_module("hvac")
        except ImportError:
            problem = "The package hvac, Vault's client, is not installed."
            raise SetupError(problem, fix="pip install 'headrace[vault]'") from None
