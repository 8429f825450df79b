"""The settings of the source of MySQL and MariaDB."""

from __future__ import annotations

from headrace.sdk.config import ConfigType, NullOr, Range, setting
from headrace_plugins.changes.settings import ChangeSettings

_MOST_IDS = (1 << 32) - 1


class MysqlSourceSettings(ChangeSettings, group="Log"):
    """How the binary log of a server is followed."""

    database_server_id: int | None = setting(
        "What the server knows the reader by, which no replica of it may have too. A large "
        "number is drawn if null.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=1, at_most=_MOST_IDS)),
    )
    connect_keep_alive_interval_ms: int = setting(
        "How often the server tells that it is there while nothing happens.",
        default=1000,
        type=ConfigType.LONG,
        validator=Range(at_least=100),
    )
