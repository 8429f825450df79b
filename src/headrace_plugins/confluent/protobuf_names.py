"""Names that Protobuf allows."""

from __future__ import annotations

import re
from urllib.parse import quote_plus

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def scrubbed(name: str) -> str:
    """Return a name that Protobuf allows, the same one if it does.

    As Confluent's converter does, what is no letter, digit or underscore is written as in a
    form of the web, with underscores for its percent signs.
    """
    if _NAME.fullmatch(name):
        return name
    # Java's URLEncoder leaves the asterisk, and encodes the tilde.
    encoded = quote_plus(name, safe="*").replace("~", "%7E")
    if encoded[:1].isdigit() or encoded.startswith("_"):
        encoded = f"x{encoded}"
    return re.sub(r"[^A-Za-z0-9_]", "_", encoded)
