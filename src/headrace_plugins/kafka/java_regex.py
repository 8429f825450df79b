"""Java's regular expressions as Spark runs them, and exactly as far as Python can.

Spark's engine is Java's, so a pattern runs as its author wrote it. Here it is taken apart: to
anchor it, to number its groups, and, where Python's engine is known to do the same, to match
names while a chain is compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from headrace.sdk.errors import ConfigError

_OPEN = re.compile(
    r"\((?:\?(?:(?P<kind>:|=|!|>|<=|<!)|<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>"
    r"|(?P<on>[a-zA-Z]*)(?P<off>-[a-zA-Z]*)?(?P<end>[:)])))?"
)
_REPEAT = re.compile(r"\{\d+(?:,\d*)?\}")
_CODE = re.compile(r"u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}")
_BACK = re.compile(r"k<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>|(?P<number>[1-9])(?!\d)")
_CLASS = re.compile(r"\[\^?(?P<inside>(?:\\[\s\S]|[^\[\]\\])+)\]")
_SET_SIGNS = ("&&", "--", "||", "~~")
_CLASS_ESCAPE = re.compile(r"\\(?![dDwWsStnrf]|[^a-zA-Z0-9])")
# Without (?m). Python's own forms know no line ends but \n.
_DOLLAR = r"(?:(?=(?:\r\n|[\r\x85\u2028\u2029])\Z)|(?<!\r)(?=\n\Z)|\Z)"
_DOT = r"[^\n\r\x85\u2028\u2029]"
_ESCAPES = {
    **{letter: f"\\{letter}" for letter in "dDwWsSbBAtnrf"},
    "z": r"\Z",
    "e": r"\x1b",
    "h": r"[ \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]",
    "v": r"[\n\x0b\x0c\r\x85\u2028\u2029]",
    "R": r"(?>\r\n|[\n\x0b\x0c\r\x85\u2028\u2029])",
}
_REPLACEMENT = re.compile(
    r"\\(?P<escaped>[\s\S])|\$\{(?P<name>[a-zA-Z][a-zA-Z0-9]*)\}|\$(?P<number>\d+)"
    r"|(?P<text>[^\\$]+)|(?P<wrong>[\s\S])"
)


@dataclass(frozen=True, slots=True)
class Replacement:
    """What stands for a match.

    Args:
        parts: Texts as they are, and groups by number.
    """

    parts: tuple[str | int, ...]

    def java(self) -> str:
        """Write it as Java reads it, however many groups the pattern has in the end."""
        written = ""
        for part in self.parts:
            if isinstance(part, int):
                written += f"${part}"
                continue
            text = part.replace("\\", r"\\").replace("$", r"\$")
            # A digit behind a group's number would count as a part of it.
            written += f"\\{text}" if written and text[:1].isdigit() else text
        return written

    def expand(self, match: re.Match[str]) -> str:
        """Give the text that stands for this match; a group that took no part is empty."""
        parts = [p if isinstance(p, str) else match.group(p) or "" for p in self.parts]
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class JavaRegex:
    """A pattern of Java, taken apart; `JavaRegex.of` makes one.

    Args:
        pattern: As it was written.
        tail: What has to follow before anything may be added behind the pattern.
        groups: How many groups it has.
        names: The numbers of the groups that have names.
        python: The same for Python's engine; None where it is not known to be the same.
        ascii_only: Whether that holds for texts of ASCII only.
    """

    pattern: str
    tail: str
    groups: int
    names: tuple[tuple[str, int], ...]
    python: re.Pattern[str] | None
    ascii_only: bool

    @staticmethod
    @lru_cache(maxsize=256)
    def of(pattern: str) -> JavaRegex:
        """Take a pattern apart that the validator `Regex` has let through."""
        return _Scan(pattern).run()

    @property
    def whole(self) -> str:
        """A pattern that finds what this one matches as a whole, as `matches()` does."""
        return rf"\A(?:{self.pattern}{self.tail})\z"

    @property
    def head(self) -> str:
        """A pattern that finds this one at the start, and all the rest as one more group."""
        return rf"\A(?:{self.pattern}{self.tail})([\s\S]*)\z"

    def knows(self, text: str) -> bool:
        """Return whether Python's engine does with this text what Java's does."""
        return self.python is not None and (text.isascii() or not self.ascii_only)

    def matches(self, text: str) -> bool | None:
        """Return whether the whole text matches; None if only Java can tell."""
        if self.python is None or not self.knows(text):
            return None
        return self.python.fullmatch(text) is not None

    def replaced_all(self, text: str, replacement: Replacement) -> str | None:
        """Give the text with each match replaced; None if only Java can tell."""
        if self.python is None or not self.knows(text):
            return None
        return self.python.sub(replacement.expand, text)

    def replaced_first(self, text: str, replacement: Replacement) -> str | None:
        """Give the text with the first match replaced; None if only Java can tell."""
        if self.python is None or not self.knows(text):
            return None
        return self.python.sub(replacement.expand, text, count=1)

    def replaced_whole(self, text: str, replacement: Replacement) -> str | None:
        """Give what stands for a text that matches as a whole; None for one that does not.

        Only for texts that Python's engine knows, see `knows`.
        """
        match = self.python.fullmatch(text) if self.python is not None else None
        return None if match is None else replacement.expand(match)


def java_replacement(regex: JavaRegex, text: str, *, key: str) -> Replacement:
    """Take a replacement in Java's syntax apart: `$1`, `${name}`, and a backslash for signs.

    Raises:
        ConfigError: It refers to a group that does not exist, or ends in mid-air.
    """
    parts: list[str | int] = []
    for found in _REPLACEMENT.finditer(text):
        if found["wrong"]:
            what = "Illegal group reference" if found["wrong"] == "$" else "Nothing to escape"
            raise _bad(problem=f"{what} in {text!r}.", key=key)
        if found["name"]:
            number = dict(regex.names).get(found["name"])
            if number is None:
                raise _bad(problem=f"No group with name {{{found['name']}}}.", key=key)
            parts.append(number)
        elif found["number"]:
            parts += _numbered(found["number"], regex.groups, key)
        else:
            parts.append(found["escaped"] or found["text"])
    return Replacement(tuple(parts))


def _numbered(digits: str, groups: int, key: str) -> list[str | int]:
    """Take the longest number that is a group's; the digits behind it are text."""
    length = 1
    while length < len(digits) and int(digits[: length + 1]) <= groups:
        length += 1
    number = int(digits[:length])
    if number > groups:
        raise _bad(problem=f"No group {number}.", key=key)
    return [number, *([digits[length:]] if digits[length:] else [])]


def _bad(*, problem: str, key: str) -> ConfigError:
    fix = r"Write $1 for the first group, $0 for all, and \$ for a dollar sign."
    return ConfigError(problem=problem, fix=fix, field=key)


@dataclass
class _Scan:
    """One pass over a pattern. Whatever Python may see otherwise makes it not the same."""

    text: str
    at: int = 0
    python: list[str] = field(default_factory=list)
    groups: int = 0
    names: list[tuple[str, int]] = field(default_factory=list)
    flags: re.RegexFlag = re.ASCII
    same: bool = True
    ascii_only: bool = False
    tail: str = ""
    comments: list[bool] = field(default_factory=lambda: [False])

    def run(self) -> JavaRegex:
        steps = {"\\": self._escape, "[": self._class, "(": self._open, ")": self._close}
        while self.at < len(self.text):
            sign = self.text[self.at]
            steps.get(sign, self._sign)()
        if self.comments[-1]:
            self.tail = "\n"
        return JavaRegex(
            self.text, self.tail, self.groups, tuple(self.names), self._made(), self.ascii_only
        )

    def _made(self) -> re.Pattern[str] | None:
        try:
            return re.compile("".join(self.python), self.flags) if self.same else None
        except (re.error, OverflowError):
            return None

    def _put(self, python: str, length: int) -> None:
        self.python.append(python)
        self.at += length

    def _differ(self, length: int) -> None:
        self.same = False
        self.at += length

    def _sign(self) -> None:
        sign = self.text[self.at]
        if self.comments[-1] and sign == "#":
            end = self.text.find("\n", self.at)
            self._differ((end if end >= 0 else len(self.text)) - self.at)
        elif sign == "{":
            repeat = _REPEAT.match(self.text, self.at)
            self._put(repeat[0], len(repeat[0])) if repeat else self._differ(1)
        elif sign == ".":
            self._put(_DOT if re.DOTALL not in self.flags else ".", 1)
        else:
            self._put(_DOLLAR if sign == "$" else sign, 1)

    def _escape(self) -> None:
        rest = self.text[self.at + 1 : self.at + 2]
        if rest == "Q":
            self._quote()
        elif back := _BACK.match(self.text, self.at + 1):
            name = back["name"]
            self._put(f"(?P={name})" if name else f"(?:\\{back['number']})", 1 + len(back[0]))
        elif code := _CODE.match(self.text, self.at + 1):
            self._put(f"\\{code[0]}", 1 + len(code[0]))
        elif rest in _ESCAPES or (rest and not rest.isalnum()):
            self.ascii_only |= rest in {"b", "B"}
            self._put(_ESCAPES.get(rest, f"\\{rest}"), 2)
        else:
            self._differ(2)

    def _quote(self) -> None:
        start = self.at + 2
        end = self.text.find("\\E", start)
        if end < 0:
            self.tail = "\\E"
        quoted = self.text[start : end if end >= 0 else len(self.text)]
        self._put(re.escape(quoted), len(quoted) + (4 if end >= 0 else 2))

    def _class(self) -> None:
        found = _CLASS.match(self.text, self.at)
        if found is None:
            self._nested_class()
            return
        inside = found["inside"]
        odd = any(sign in inside for sign in _SET_SIGNS) or _CLASS_ESCAPE.search(inside)
        self.same &= not odd and not self.comments[-1]
        self._put(found[0], len(found[0]))

    def _nested_class(self) -> None:
        depth, start = 0, self.at
        while self.at < len(self.text):
            sign = self.text[self.at]
            depth += (sign == "[") - (sign == "]")
            self.at += 2 if sign == "\\" else 1
            if depth == 0:
                break
        self._differ(0 if self.at > start else 1)

    def _open(self) -> None:
        found = _OPEN.match(self.text, self.at)
        assert found is not None
        self.groups += found["name"] is not None or len(found[0]) == 1
        if found["name"]:
            self.names.append((found["name"], self.groups))
        if found["end"]:
            self._flags(found)
            return
        self.comments.append(self.comments[-1])
        self._put(f"(?P<{found['name']}>" if found["name"] else found[0], len(found[0]))

    def _flags(self, found: re.Match[str]) -> None:
        on, off = found["on"], found["off"] or ""
        comments = "x" in on or (self.comments[-1] and "x" not in off)
        if found["end"] == ":":
            self.comments.append(comments)
            self.same &= set(on + off) <= set("i-")
            self._put(found[0], len(found[0]))
            return
        self.comments[-1] = comments
        self.same &= self.at == 0 and set(on) <= set("is") and not off
        self.flags |= re.IGNORECASE if "i" in on else re.NOFLAG
        self.flags |= re.DOTALL if "s" in on else re.NOFLAG
        self._put("", len(found[0]))

    def _close(self) -> None:
        if len(self.comments) > 1:
            self.comments.pop()
        self._put(")", 1)
