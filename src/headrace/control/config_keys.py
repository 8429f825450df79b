"""Keys of flat configurations: those below a prefix, unknown ones, and errors of a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import ConfigError, ConfigErrors, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from headrace.sdk.config import ConfigDef


def below(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the keys that begin with a prefix, without it."""
    return {
        key.removeprefix(prefix): value
        for key, value in config.items()
        if key.startswith(prefix)
    }


def key_at(place: str, key: str | None) -> str:
    """Return the full name of a key of a part, or of the whole part."""
    return ".".join(part for part in (place, key) if part)


def errors_at(errors: Iterable[HeadraceError], place: str = "") -> ConfigErrors:
    """Return the errors of a part with the full names of its keys."""
    return ConfigErrors(
        ConfigError(error.problem, fix=error.fix, field=key_at(place, error.field) or None)
        for error in errors
    )


def unknown_keys(
    keys: ConfigDef,
    config: Mapping[str, str],
    place: str,
    prefixes: Sequence[str] = (),
    at_top: Container[str] = (),
) -> Iterator[ConfigError]:
    """Yield an error for each key that is not defined and begins with no prefix.

    Keys ``at_top`` are those that the definition has outside of the place.
    """
    for name, close in keys.unknown(config, prefixes=prefixes):
        known = ", ".join(keys.keys) or "none"
        fix = f"Did you mean {close}?" if close else f"Known keys: {known}."
        if name in at_top:
            fix = f"It is of the whole connector: write {name} at the top, not below {place}."
        yield ConfigError("Unknown key.", field=key_at(place, name), fix=fix)
