"""What a failed check says: which promise is broken, how it showed, and where to read."""

from __future__ import annotations

import inspect


class BrokenPromiseError(AssertionError):
    """A connector does not do what its contract says.

    Args:
        promise: What should hold, as a sentence.
        seen: How it showed that it does not hold.
        read: The class or method of the SDK whose docstring states the promise.
    """

    def __init__(self, *, promise: str, seen: str, read: object) -> None:
        self.promise = promise
        self.seen = seen
        where = f"{getattr(read, '__module__', '')}.{getattr(read, '__qualname__', read)}"
        text = inspect.getdoc(read) or ""
        super().__init__(f"{promise}\nSeen: {seen}\nRead: {where}\n\n{_indented(text)}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
