"""Immutable mappings, and conversion of values to immutable values and back."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

from typing_extensions import override

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FrozenMap(Mapping[K, V_co]):
    """An immutable mapping that keeps its order, and can be hashed and pickled.

    As with any mapping, equality ignores the order.
    """

    _items: Mapping[K, V_co] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_items", dict(self._items))

    @override
    def __getitem__(self, key: K) -> V_co:
        return self._items[key]

    @override
    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    @override
    def __len__(self) -> int:
        return len(self._items)

    @override
    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    @override
    def __repr__(self) -> str:
        return repr(self._items)


class Freezable(ABC):
    """A value that has an immutable form."""

    __slots__ = ()

    @abstractmethod
    def frozen(self) -> Any:
        """Return an equal immutable value."""

    @abstractmethod
    def thawed(self) -> Any:
        """Return an equal mutable value."""

    @abstractmethod
    def identity(self) -> Hashable:
        """Return a key that is the same for equal values."""


def freeze(value: Any) -> Any:
    """Return an equal, deeply immutable value."""
    match value:
        case list() | tuple():
            return tuple(freeze(item) for item in value)
        case Mapping():
            return FrozenMap({freeze(key): freeze(item) for key, item in value.items()})
        case bytearray() | memoryview():
            return bytes(value)
        case Freezable():
            return value.frozen()
        case _:
            return value


def thaw(value: Any) -> Any:
    """Return an equal value made of mutable lists, dictionaries and structs."""
    match value:
        case tuple():
            return [thaw(item) for item in value]
        case FrozenMap():
            # A key stays frozen because it must be hashable.
            return {key: thaw(item) for key, item in value.items()}
        case Freezable():
            return value.thawed()
        case _:
            return value


def identity(value: Any) -> Hashable:
    """Return a key that is the same for equal values; unlike with `==`, NaN equals itself.

    Java compares floats like this, and a schema with the default NaN must equal its copy.
    """
    match value:
        case float():
            return float, repr(value)
        case list() | tuple():
            return tuple(identity(item) for item in value)
        case Mapping():
            return frozenset((identity(key), identity(item)) for key, item in value.items())
        case Freezable():
            return value.identity()
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            checked: Hashable = value
            return checked
