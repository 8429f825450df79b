"""The built-in configuration providers."""

from headrace_plugins.providers.environment import EnvironmentProvider
from headrace_plugins.providers.files import DirectoryProvider, FileProvider
from headrace_plugins.providers.vault import VaultProvider

__all__ = ["DirectoryProvider", "EnvironmentProvider", "FileProvider", "VaultProvider"]
