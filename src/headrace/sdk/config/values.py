"""The values of a configuration, parsed, and secrets that do not show."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, final

from typing_extensions import override

from headrace.sdk.errors import ConfigError
from headrace.sdk.frozen import FrozenMap, freeze

__all__ = ["HIDDEN", "Config", "Password"]

HIDDEN = "[hidden]"

T = TypeVar("T")


@final
class Password:
    """A secret text that shows as `[hidden]` wherever it is printed.

    Args:
        value: The secret; ask for it only where it is sent.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def value(self) -> str:
        """The secret itself."""
        return self._value

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Password):
            return NotImplemented
        return self._value == other.value

    @override
    def __hash__(self) -> int:
        return hash(self._value)

    @override
    def __repr__(self) -> str:
        return HIDDEN


@final
class Config(Mapping[str, Any]):
    """The parsed values of a configuration, by key, defaults filled in; it never changes.

    The typed getters are for keys that have a value; those that begin with `find_` give None
    where the value is null. Printed, it shows the parsed values only, and no password.

    Args:
        values: The parsed values of all defined keys.
        originals: The texts as they were given, keys that are not defined included.
    """

    __slots__ = ("_originals", "_values")
    _values: FrozenMap[str, Any]
    _originals: FrozenMap[str, str]

    def __init__(
        self, values: Mapping[str, Any], originals: Mapping[str, str] | None = None
    ) -> None:
        frozen = FrozenMap({key: freeze(value) for key, value in values.items()})
        object.__setattr__(self, "_values", frozen)
        object.__setattr__(self, "_originals", FrozenMap(originals))

    @property
    def originals(self) -> Mapping[str, str]:
        """The texts as they were given, keys that are not defined included."""
        return self._originals

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Give the original texts of the keys with that prefix, by the rest of the key."""
        return {
            key.removeprefix(prefix): text
            for key, text in self._originals.items()
            if key.startswith(prefix)
        }

    def get_str(self, key: str) -> str:
        """Give a STRING or CLASS value; raises ConfigError if null, KeyError if unknown."""
        return self._required(key, str)

    def get_int(self, key: str) -> int:
        """Give an INT, SHORT or LONG value; errors as `get_str`'s."""
        return self._required(key, int)

    def get_float(self, key: str) -> float:
        """Give a DOUBLE value; errors as `get_str`'s."""
        return self._required(key, float)

    def get_bool(self, key: str) -> bool:
        """Give a BOOLEAN value; errors as `get_str`'s."""
        return self._required(key, bool)

    def get_password(self, key: str) -> Password:
        """Give a PASSWORD value; errors as `get_str`'s."""
        return self._required(key, Password)

    def get_list(self, key: str) -> list[str]:
        """Give a LIST value as a new list, empty if it is null."""
        return list(self.find(key, tuple) or ())

    def find_str(self, key: str) -> str | None:
        """Give a STRING or CLASS value, or None. Raises KeyError if the key is unknown."""
        return self.find(key, str)

    def find_int(self, key: str) -> int | None:
        """Give an INT, SHORT or LONG value, or None; errors as `find_str`'s."""
        return self.find(key, int)

    def find_float(self, key: str) -> float | None:
        """Give a DOUBLE value, or None; errors as `find_str`'s."""
        return self.find(key, float)

    def find_bool(self, key: str) -> bool | None:
        """Give a BOOLEAN value, or None; errors as `find_str`'s."""
        return self.find(key, bool)

    def find_password(self, key: str) -> Password | None:
        """Give a PASSWORD value, or None; errors as `find_str`'s."""
        return self.find(key, Password)

    def find(self, key: str, kind: type[T]) -> T | None:
        """Give the value if it is of that Python type, None if it is null.

        Raises:
            KeyError: The key is not defined.
            TypeError: The key is defined with another type: a mistake in the plugin.
        """
        value = self._values[key]
        if value is not None and type(value) is not kind:
            message = f"{key} is defined with another type than {kind.__name__}."
            raise TypeError(message)
        return value

    def _required(self, key: str, kind: type[T]) -> T:
        value = self.find(key, kind)
        if value is None:
            raise ConfigError(problem="A value is needed here.", fix="Set it.", field=key)
        return value

    @override
    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @override
    def __len__(self) -> int:
        return len(self._values)

    @override
    def __setattr__(self, name: str, value: object) -> None:
        message = f"A Config does not change: {name} cannot be set."
        raise AttributeError(message)

    @override
    def __hash__(self) -> int:
        return hash(self._values)

    @override
    def __repr__(self) -> str:
        return f"Config({self._values!r})"

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return Config, (self._values, self._originals)
