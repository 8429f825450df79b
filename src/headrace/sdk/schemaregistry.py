"""What the SDK knows of the runtime's schema registry."""

from typing import Protocol

__all__ = ["SchemaRegistry"]


class SchemaRegistry(Protocol):
    """The schema registry that the runtime itself has.

    The SDK does not say what can be asked of it: whoever makes it and the converters that use
    it agree on a Protocol, and a converter checks with ``isinstance`` that it is one it knows.
    """

    def close(self) -> None:
        """Let go of connections and files; the next call opens them again."""
