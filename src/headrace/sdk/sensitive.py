"""Detects secrets by key names and inside texts such as configurations, logs and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from headrace.sdk.config.values import HIDDEN


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""The words of ``ssl.key.password``, ``dbPassword``, ``DB_PWD2`` and ``x-api-key``."""
_STRONG = re.compile(
    r"passw(or)?d|passwords|passphrase|secret|credential|jaas|userinfo|"
    r"token(?!i[sz])|(api|access|private|secret|account|ssh|signing|encryption|auth|master)keys?"
)
"""Secret anywhere within a word; ``tokenizer`` is not a secret."""
_HARMLESS_WORDS = _words("secretary secretaries")
_LAST = _words(
    "pass pwd pw pin sas sig signature bearer cookie cookies authorization passcode jwt otp "
    "totp cred creds psk hmac pem mnemonic"
)
"""Secret at the end of a name: ``db.pass``, but not ``pass.through``."""
_KEYS = _words(
    "api access private secret account ssh ssl tls signing encryption auth master shared "
    "storage keystore sas subscription hmac service"
)
_HEADERS = _words("http request auth authorization extra custom default cookie")
_PAIRS = frozenset(
    {
        *((each, "key") for each in _KEYS),
        *((each, end) for each in _HEADERS for end in ("header", "headers")),
        ("user", "info"),
        ("pass", "phrase"),
        ("pass", "code"),
        ("pass", "word"),
        ("basic", "auth"),
        ("pin", "code"),
    }
)
"""Secret if the two words are adjacent."""
_JOINED = re.compile(
    r"(db|user|usr|my|key|store|trust|smtp|mail|ftp|ldap|http|proxy|admin|root|pg|sql|redis|"
    r"mongo|login|app|svc|ssh|ssl|jdbc)(pass|pwd|pw)"
)
_VALUE_WORDS = _words("value text string plain base encoded hash")
"""Words ignored at the end of a name: ``token.value``, ``secret.base64``."""
_ABOUT = _words(
    "file path location source type provider class mode enabled enable url uri endpoint ttl "
    "expiry expires count max min limit length size ms sec secs second seconds minute minutes "
    "algorithm interval timeout policy format strategy name field fields column columns issuer "
    "audience scope service manager converter required"
)
"""A name with this ending describes a secret or its location, and is not a secret."""
_MEASURES = _words("max min num count")
_PLAIN = _words("true false null none user_info url inherit")

_REFERENCE = r"\$\{[^}]{0,500}\}"
"""Unambiguous and bounded, to avoid catastrophic backtracking: texts may be hostile."""
_SIGN = re.compile(r"=\s*|%3[dD]|:(?:\s+|(?<=[\"']:)(?=[\"']))")
"""The separators of ``name=value`` in URLs, options and connection strings, and of
``"name": "value"``; not of ``name:type``. A URL within a URL is escaped."""
_ESCAPED = re.compile(r"%[0-9a-fA-F]{2}")
_ESCAPED_VALUE = re.compile(r"(?P<escaped>(?:(?!%26)[^\s&;,'\"}])+)")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-%")
_LONGEST_NAME = 200
_VALUE = re.compile(
    r"\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|"
    rf"(?P<bare>(?:{_REFERENCE}|(?!{_REFERENCE})"
    r"(?:[^\s&;,'\"}]|,(?!\s*[\w.\-]{1,200}\s*[=:])))+)"
)
_SCHEME = r"(?:bearer|basic|digest|negotiate|token|apikey)\s+"
_HEADER = re.compile(
    r"(?:(?:\b(?:proxy-)?authorization|\bx-[\w-]{0,100}(?:key|token|secret))[\"']?\s*"
    rf"(?::|=(?=\s*[\"']?{_SCHEME}))\s*[\"']?(?P<whole>(?:{_SCHEME})?"
    rf"(?:{_REFERENCE}|[^\s,'\"}}])+))"
    r"|\b(?:set-)?cookie\s*:\s*(?P<cookie>[^=\s,;]{1,200}=[^\r\n'\"]*)"
    rf"|\b(?:bearer|basic)\s+(?P<shown>{_REFERENCE}|"
    r"(?=\S{0,2000}[0-9=])[\w+/=.~\-]{8,})",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"://[^/\s:@\[\]?#]*:"
    rf"(?:(?P<plain>(?:{_REFERENCE}|(?!{_REFERENCE})[^\s/?#])+)|"
    r"(?P<slashed>(?!\d+(?:[/?#]|$))(?:(?!://)\S)*?))(?=@)"
    r"|jdbc:oracle:\w{1,20}:[^/\s@:]*/"
    r"(?P<oracle>\"[^\"]*\"|[^\s@/](?:(?!jdbc:)\S)*?)(?=@)"
    r"|(?:(?<=http)|(?<=https))://(?P<token>[^/\s:@\[\]?#]{16,})(?=@)",
    re.IGNORECASE,
)
"""``user:x@`` in any URL, even with unescaped characters in the password; and Oracle's form.

A long user name without a password in an HTTP URL is a token, such as those for Git.
"""
_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?P<key>.*?)(?=-----END|\Z)", re.DOTALL
)
_OPTION = re.compile(r"(?<!\S)--([a-zA-Z][\w.\-]{0,100})[ \t]+(?!--)")
_ELEMENT = re.compile(
    r"<(?:\w{1,50}:)?([a-zA-Z][\w.\-]{0,100})(?:\s[^<>]{0,200})?>([^<>]+)(?=</)"
)


def is_sensitive(name: str) -> bool:
    """Return whether a key, field or parameter with this name contains a secret.

    For undefined names: if a key is defined, its type is more reliable.
    """
    words = [each.lower() for each in _WORD.findall(name)]
    while words and words[-1] in _VALUE_WORDS:
        words.pop()
    if not words or words[-1] in _ABOUT or words[0] in _MEASURES:
        return False
    return (
        words[-1] in _LAST
        or _JOINED.fullmatch(words[-1]) is not None
        or any(pair in _PAIRS for pair in pairwise(words))
        or any(_STRONG.search(each) for each in words if each not in _HARMLESS_WORDS)
    )


def masked(text: str, shows: Callable[[str], bool] = lambda _: False) -> str:
    """Return a text in which secrets are replaced by `[hidden]`.

    Args:
        text: Any text, such as a URL, a connection string or a log line.
        shows: Returns whether a detected secret may be shown, such as a reference.
    """
    parts, end = [], 0
    for start, stop in _spans(text):
        if not shows(text[start:stop]):
            parts += [text[end:start], HIDDEN]
            end = stop
    return "".join([*parts, text[end:]])


def secrets_in(text: str) -> list[str]:
    """Return the secrets that `masked` would hide."""
    return [text[start:stop] for start, stop in _spans(text)]


def _spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of secrets, in order; overlapping spans are merged."""
    found: list[tuple[int, int]] = []
    ways = (_in_places, _in_pairs, _in_options, _in_elements)
    for start, stop in sorted({span for way in ways for span in way(text)}):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        elif start < stop:
            found.append((start, stop))
    return found


_SIGNS = {_ADDRESS: ("://", "jdbc:"), _HEADER: ("",), _KEY: ("private key-----",)}
"""Each text with such a secret contains one of these strings, which are fast to search for."""


def _in_places(text: str) -> Iterator[tuple[int, int]]:
    lower = text.lower()
    for pattern, signs in _SIGNS.items():
        if any(sign in lower for sign in signs):
            yield from map(_group, pattern.finditer(text))


def _in_pairs(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while sign := _SIGN.search(text, at):
        at = sign.end()
        name = _name_before(text, sign.start())
        if not name or not _holds(name, spaced=name[-1] == " "):
            continue  # a value may contain pairs: url=...?password=x
        kind = _ESCAPED_VALUE if sign[0].startswith("%") else _VALUE
        value = kind.match(text, at)
        if value is not None:
            start, stop = _group(value)
            at = value.end()
            if text[start:stop].lower() not in _PLAIN:
                yield start, stop


def _in_options(text: str) -> Iterator[tuple[int, int]]:
    """Yield the values of command-line options, as in ``--password x``."""
    if "--" in text:
        for match in _OPTION.finditer(text):
            value = _VALUE.match(text, match.end()) if is_sensitive(match[1]) else None
            if value is not None:
                yield _group(value)


def _in_elements(text: str) -> Iterator[tuple[int, int]]:
    if "</" in text:
        for match in _ELEMENT.finditer(text):
            if is_sensitive(match[1]):
                yield match.span(2)


def _name_before(text: str, end: int) -> str:
    """Return the name that ends at ``end``, with one space if whitespace follows the name."""
    near = text[max(0, end - _LONGEST_NAME) : end]
    bare = near.rstrip()
    name = bare.rstrip("\"'")
    start = len(name)
    while start and name[start - 1] in _NAME:
        start -= 1
    return name[start:] + (" " if bare != near else "")


def _group(match: re.Match[str]) -> tuple[int, int]:
    """Return the span of the only named group that matched."""
    assert match.lastgroup is not None
    return match.span(match.lastgroup)


def _holds(name: str, *, spaced: bool) -> bool:
    """Return whether a pair is a secret; with spaces around the sign the rules are stricter."""
    if "%" in name and _holds(_ESCAPED.split(name)[-1], spaced=spaced):
        return True
    words = [each.lower() for each in _WORD.findall(name)]
    return is_sensitive(name) and (not spaced or words[-1] not in _LAST)
