"""The settings of the PostgreSQL source."""

from __future__ import annotations

import hashlib
import re
from enum import Enum

from headrace.sdk.config import (
    ConfigType,
    Importance,
    Lambda,
    NullOr,
    Range,
    invalid,
    setting,
)
from headrace_plugins.changes.settings import ChangeSettings

OWN_SLOT = "headrace_"
"""The prefix of default slot names."""
_PLAIN = 63 - len(OWN_SLOT)
_SLOT = re.compile(r"[a-z0-9_]{1,63}")


class PublicationMode(Enum):
    """Whether the connector creates the publication, and for which tables."""

    FILTERED = "filtered"
    ALL_TABLES = "all_tables"
    DISABLED = "disabled"


def _check_slot(name: str, value: object) -> None:
    if not _SLOT.fullmatch(str(value)):
        fix = "Use up to 63 lowercase ASCII letters, digits and underscores."
        raise invalid(name, value, "Invalid name of a replication slot", fix=fix)


class PostgresSourceSettings(ChangeSettings, group="Log"):
    """Settings of the PostgreSQL source."""

    slot_name: str | None = setting(
        "The replication slot, which makes the server keep changes until they are read. It is "
        "created at the first start. headrace_ and the connector's name if null.",
        default=None,
        validator=NullOr(Lambda(_check_slot, "the name of a replication slot")),
        importance=Importance.HIGH,
    )
    slot_failover: bool = setting(
        "Whether PostgreSQL 17 and newer synchronize the slot to standbys, so that the "
        "connector continues on a promoted standby. An existing slot is altered.",
        default=True,
        importance=Importance.MEDIUM,
    )
    slot_warn_retained_bytes: int | None = setting(
        "The number of bytes of its log that the server may retain for the slot before a "
        "warning is logged. No warning if null.",
        default=10 << 30,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=1)),
    )
    slot_max_retained_bytes: int | None = setting(
        "The number of bytes of its log that the server may retain for the slot before the "
        "slot is dropped and the task fails: changes that it has not read are lost, and all "
        "tables have to be read again. Checked while the task runs. Never dropped if null.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=1)),
        importance=Importance.MEDIUM,
    )
    publication_name: str | None = setting(
        "The publication, which defines the tables whose changes are streamed. The name of the "
        "slot if null.",
        default=None,
        importance=Importance.HIGH,
    )
    publication_autocreate_mode: PublicationMode = setting(
        "Whether the connector creates the publication and adds missing tables: filtered for "
        "the followed tables, which the user must own; all_tables for every table, which "
        "requires a superuser; disabled if the publication is managed elsewhere.",
        default=PublicationMode.FILTERED,
    )

    def slot(self, connector: str) -> str:
        """Return the slot name for a connector."""
        if self.slot_name is not None:
            return self.slot_name
        plain = re.sub(r"[^a-z0-9_]", "_", connector.lower())
        if plain != connector or len(plain) > _PLAIN:  # avoid collisions with other names
            digest = hashlib.blake2b(connector.encode(), digest_size=4).hexdigest()
            plain = f"{plain[: _PLAIN - 9]}_{digest}"
        return f"{OWN_SLOT}{plain}"
