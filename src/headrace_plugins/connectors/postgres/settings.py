"""The settings of the source of PostgreSQL."""

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
"""What names of slots begin with that are given here."""
_PLAIN = 63 - len(OWN_SLOT)
_SLOT = re.compile(r"[a-z0-9_]{1,63}")


class PublicationMode(Enum):
    """Whether a publication is made, and of what."""

    FILTERED = "filtered"
    ALL_TABLES = "all_tables"
    DISABLED = "disabled"


def _check_slot(name: str, value: object) -> None:
    if not _SLOT.fullmatch(str(value)):
        fix = "Use up to 63 small letters of ASCII, digits and underscores."
        raise invalid(name, value, "Invalid name of a replication slot", fix=fix)


class PostgresSourceSettings(ChangeSettings, group="Log"):
    """How the log of a PostgreSQL database is followed."""

    slot_name: str | None = setting(
        "The replication slot, which makes the server keep what is not read yet. It is created "
        "at the first start. headrace_ and the connector's name if null.",
        default=None,
        validator=NullOr(Lambda(_check_slot, "the name of a replication slot")),
        importance=Importance.HIGH,
    )
    slot_failover: bool = setting(
        "Whether PostgreSQL 17 and newer synchronize the slot to standbys, so that the "
        "connector goes on at the one that is promoted. A slot that is there is altered.",
        default=True,
        importance=Importance.MEDIUM,
    )
    slot_warn_retained_bytes: int | None = setting(
        "How many bytes of its log the server may keep for the slot before that is logged as a "
        "warning. No warning if null.",
        default=10 << 30,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=1)),
    )
    slot_max_retained_bytes: int | None = setting(
        "How many bytes of its log the server may keep for the slot before the slot is dropped "
        "and the task fails: what it has not read is lost to it, and all tables have to be "
        "read again. It is looked at while the task runs. Never if null.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=1)),
        importance=Importance.MEDIUM,
    )
    publication_name: str | None = setting(
        "The publication, which says what tables the log has changes of. The name of the slot "
        "if null.",
        default=None,
        importance=Importance.HIGH,
    )
    publication_autocreate_mode: PublicationMode = setting(
        "Whether the publication is made if there is none, and gets the tables that it lacks: "
        "filtered for the tables that are followed, which the user must own; all_tables for "
        "every table, which takes a superuser; disabled if others look after it.",
        default=PublicationMode.FILTERED,
    )

    def slot(self, connector: str) -> str:
        """Return the name of the slot of a connector."""
        if self.slot_name is not None:
            return self.slot_name
        plain = re.sub(r"[^a-z0-9_]", "_", connector.lower())
        if plain != connector or len(plain) > _PLAIN:  # another's name may become the same
            digest = hashlib.blake2b(connector.encode(), digest_size=4).hexdigest()
            plain = f"{plain[: _PLAIN - 9]}_{digest}"
        return f"{OWN_SLOT}{plain}"
