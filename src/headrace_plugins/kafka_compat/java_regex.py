"""Java's regular expressions, for Spark and, where the result is the same, for RE2.

Spark uses Java's engine, so a pattern runs there as its author wrote it. This module parses
patterns to anchor them, to number their groups and, if RE2 is known to match the same, to match
names while a chain is compiled. RE2 takes time linear in the name's length; Python's engine can
take exponential time while it blocks all other threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from headrace.sdk.errors import ConfigError

_TOKEN = re.compile(
    r"\\Q(?P<quoted>[\s\S]*?)(?P<closed>\\E|\Z)|\\k<(?P<back>[a-zA-Z][a-zA-Z0-9]*)>"
    r"|(?P<same>\\(?:[dDwWsSbBAtnrf]|[1-9](?!\d)|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^a-zA-Z0-9]))"
    r"|\\[\s\S]?"
    r"|(?P<class>\[\^?\]?(?:\\[\s\S]|[^\[\]\\]|(?P<nested>\[(?:\\[\s\S]|[^\]\\])*\]))*\])"
    r"|\((?:\?(?:(?P<kind>:|=|!|>|<=|<!)|<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>"
    r"|(?P<on>[a-zA-Z]*)(?P<off>-[a-zA-Z]*)?(?P<end>[:)])))?"
    r"|(?P<repeat>\{\d+(?:,\d*)?\})|[\s\S]"
)
_ODD_CLASS = re.compile(r"&&|--|\|\||~~|\\(?![dDwWsStnrf]|[^a-zA-Z0-9])")
_REPLACEMENT = re.compile(
    r"\\(?P<escaped>[\s\S])|\$\{(?P<name>[a-zA-Z][a-zA-Z0-9]*)\}|\$(?P<number>\d+)"
    r"|(?P<text>[^\\$]+)|(?P<wrong>[\s\S])"
)

Expand = Callable[[Any], str]
"""Returns the replacement text of an RE2 match."""


@dataclass(frozen=True, slots=True)
class JavaRegex:
    """A parsed Java pattern; created by `JavaRegex.of`.

    Args:
        pattern: The text of the pattern.
        tail: The text that must follow the pattern before other text can be appended.
        groups: The number of groups.
        names: The names and numbers of named groups.
        re2: The compiled RE2 pattern; None if it might match differently.
    """

    pattern: str
    tail: str
    groups: int
    names: tuple[tuple[str, int], ...]
    re2: Any

    @staticmethod
    @lru_cache(maxsize=256)
    def of(pattern: str) -> JavaRegex:
        """Parse a pattern that the validator `Regex` has accepted."""
        return _Scan(pattern).run()

    @property
    def whole(self) -> str:
        """A pattern that only matches a whole text, like Java's `matches()`."""
        return rf"\A(?:{self.pattern}{self.tail})\z"

    @property
    def head(self) -> str:
        """A pattern that only matches at the start of a text."""
        return rf"\A(?:{self.pattern}{self.tail})"

    def re2_for(self, text: str) -> Any:
        """Return the RE2 pattern if it matches this text exactly as Java does, else None."""
        # RE2 and Java differ in line ends and, beyond ASCII, in \b and (?i): RE2 folds the case
        # of all letters, and also treats U+212A as k and U+017F as s.
        known = text.isascii() or not (
            re.search(r"\\[bB]", self.pattern)
            or (
                re.search(r"\(\?[a-z]*i", self.pattern)
                and not (self.pattern.isascii() and set("\u212a\u017f").isdisjoint(text))
            )
        )
        return self.re2 if known and text.isprintable() else None

    def matches(self, text: str) -> bool | None:
        """Return whether the whole text matches; None if only Java can decide."""
        pattern = self.re2_for(text)
        return None if pattern is None else pattern.fullmatch(text) is not None

    def replacement(self, text: str, *, key: str) -> Expand:
        """Parse a replacement in Java's syntax: `$1`, `${name}`, and backslash escapes.

        Raises:
            ConfigError: The replacement is incomplete, or refers to a missing group.
        """
        parts: list[str | int] = []
        for found in _REPLACEMENT.finditer(text):
            if found["wrong"]:
                what = (
                    "Illegal group reference" if found["wrong"] == "$" else "Nothing to escape"
                )
                raise _bad(problem=f"{what} in {text!r}.", key=key)
            if found["name"]:
                number = dict(self.names).get(found["name"])
                if number is None:
                    raise _bad(problem=f"No group with name {{{found['name']}}}.", key=key)
                parts.append(number)
            elif digits := found["number"]:
                # Take the longest number that is a group; the digits after it are text.
                length = 1
                while length < len(digits) and int(digits[: length + 1]) <= self.groups:
                    length += 1
                if int(digits[:length]) > self.groups:
                    raise _bad(problem=f"No group {digits[:length]}.", key=key)
                parts += [int(digits[:length]), digits[length:]]
            else:
                parts.append(found["escaped"] or found["text"])
        # A group that did not participate in the match is empty.
        return lambda match: "".join(
            part if isinstance(part, str) else match.group(part) or "" for part in parts
        )


def _bad(*, problem: str, key: str) -> ConfigError:
    fix = r"Write $1 for the first group, $0 for the whole match, and \$ for a dollar sign."
    return ConfigError(problem=problem, fix=fix, field=key)


def _compiled(pattern: str) -> Any:
    """Return the compiled RE2 pattern; None if RE2 does not support it."""
    import re2  # noqa: PLC0415 - most processes match no patterns

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


@dataclass
class _Scan:
    """One pass over a pattern; clears ``same`` at syntax that RE2 may treat differently."""

    text: str
    tail: str = ""
    groups: int = 0
    names: list[tuple[str, int]] = field(default_factory=list)
    same: bool = True
    translated: str = ""
    comments: list[bool] = field(default_factory=lambda: [False])
    """Whether spaces and comments after # are ignored, for each enclosing group."""

    def run(self) -> JavaRegex:
        at = 0
        while at < len(self.text):
            if self.comments[-1] and self.text[at] == "#":
                at = self.text.find("\n", at) + 1 or len(self.text)
                continue
            found = _TOKEN.match(self.text, at)
            assert found is not None
            self.translated += self._token(found)
            at = found.end()
        tail = "\n" if self.comments[-1] else self.tail
        compiled = _compiled(self.translated) if self.same else None
        return JavaRegex(self.text, tail, self.groups, tuple(self.names), compiled)

    def _token(self, found: re.Match[str]) -> str:
        """Return the token in RE2's syntax."""
        text = found[0]
        if found["closed"] is not None:
            self.tail = "" if found["closed"] else "\\E"
            return re.escape(found["quoted"])
        if found["back"]:
            self.same = False
            return text
        if found["end"]:
            return self._flagged(found)
        if text.startswith("("):
            self.groups += found["kind"] is None
            if found["name"]:
                self.names.append((found["name"], self.groups))
            self.comments.append(self.comments[-1])
            return f"(?P<{found['name']}>" if found["name"] else text
        if text == ")" and len(self.comments) > 1:
            self.comments.pop()
        odd = (
            found["nested"] or _ODD_CLASS.search(text) if found["class"] else text in {"{", "["}
        )
        self.same &= not odd and (bool(found["same"]) or not text.startswith("\\"))
        return text

    def _flagged(self, found: re.Match[str]) -> str:
        on, off = found["on"], found["off"] or ""
        comments = "x" in on or (self.comments[-1] and "x" not in off)
        self.same &= not comments
        if found["end"] == ":":
            self.comments.append(comments)
            self.same &= set(on + off) <= set("i-")
            return found[0]
        self.comments[-1] = comments
        self.same &= not self.translated and set(on) <= set("is") and not off
        return found[0]
