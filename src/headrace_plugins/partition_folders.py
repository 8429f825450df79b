"""Folders that are named by a column's value, as in Hive's partitions."""

from __future__ import annotations

import re
from urllib.parse import quote as percent_encoded

from headrace.sdk import Refusal
from headrace.sdk.folders import NULL_FOLDER
from headrace.sdk.sqltext import literal

_MOST_BYTES = 255
"""The longest name of a folder on Linux's file systems."""
_ESCAPED = "[\\x01-\\x1F\\x7F\"#%'*/:=?\\\\{\\[\\]^]"
"""What Spark writes as three characters: a percent sign and two digits."""


def unstorable_value(column: str, sql: str, *, encoded: bool = False) -> Refusal:
    """Return the condition for values of a string that cannot name a partition's folder.

    Args:
        column: The partition column.
        sql: Its value.
        encoded: Whether the writer percent-encodes names as in URLs, as deltalake does, and
            not only what Spark does.
    """
    if encoded:
        name = f"replace(replace(url_encode({sql}), '+', '%20'), '*', '%2A')"
        most = _MOST_BYTES - len(f"{percent_encoded(column)}=")
    else:
        name = f"regexp_replace({sql}, {literal(_ESCAPED)}, '%00')"
        most = _MOST_BYTES - len(re.sub(_ESCAPED, "%00", column).encode()) - 1
    unstorable = (
        f"octet_length({name}) > {most} OR contains({sql}, char(0)) "
        f"OR {sql} = {literal(NULL_FOLDER)}"
    )
    return Refusal(
        condition=f"coalesce({unstorable}, false)",
        problem="The value of a partition column cannot be the name of a folder, as it is "
        f"longer than {_MOST_BYTES} bytes, contains a NUL character, or is the name for null, "
        f"{NULL_FOLDER}.",
        fix="Change the values with a transform, or set another partition.by.",
        field=column,
    )
