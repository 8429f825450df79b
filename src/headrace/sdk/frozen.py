"""Values that cannot change: immutable mappings, and freezing and thawing of values."""

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
    """A mapping that never changes, keeps its order, and can be hashed and pickled.

    Equality is that of any mapping: order does not count.
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
    """A value that has an immutable twin."""

    __slots__ = ()

    @abstractmethod
    def frozen(self) -> Any:
        """Give an equal value that never changes."""

    @abstractmethod
    def thawed(self) -> Any:
        """Give an equal value that may be changed."""

    @abstractmethod
    def identity(self) -> Hashable:
        """Give what two equal values have in common."""


def freeze(value: Any) -> Any:
    """Give an equal value that never changes, to the depth."""
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
    """Give an equal value made of lists, dictionaries and structs that may be changed."""
    match value:
        case tuple():
            return [thaw(item) for item in value]
        case FrozenMap():
            # A key stays frozen, as it has to be hashable.
            return {key: thaw(item) for key, item in value.items()}
        case Freezable():
            return value.thawed()
        case _:
            return value


def identity(value: Any) -> Hashable:
    """Give what equal values have in common; unlike `==`, NaN is equal to itself.

    Java compares floats so, and a schema with the default NaN has to equal its own copy.
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
