"""Texts from outside, escaped so that they cannot control a terminal."""

import re
import unicodedata

_CONTROLS_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal, and that JSON does not escape."""
_UNSEEN = {"Cc", "Cf"}
"""Unicode categories of control characters and of invisible or bidirectional formatting."""
_JOINERS = "\u00ad\u200c\u200d"
"""Invisible characters that words and emoji consist of."""


def visible(text: str) -> str:
    """Return the text with control characters escaped: external names may contain any.

    Continuation lines are indented, so that they cannot imitate a line of the command.
    """
    return "\n    ".join(map(escaped, text.split("\n")))


def escaped(text: str) -> str:
    """Return one line of text with control characters escaped."""
    return "".join(
        repr(sign)[1:-1]
        if unicodedata.category(sign) in _UNSEEN and sign not in _JOINERS
        else sign
        for sign in text
    )


def escaped_json(text: str) -> str:
    """Return JSON with the control characters escaped that JSON itself allows."""
    return _CONTROLS_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
