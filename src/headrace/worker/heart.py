"""Keeps the leases of a worker's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from headrace.worker.labels import labels

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta

    from headrace.store import Store
    from headrace.worker.entry import Entry

log = structlog.get_logger(__name__)


def renew_leases(entries: Collection[Entry], store: Store, lease: timedelta) -> None:
    """Renew the leases of the tasks that run, and cancel those that have lost theirs.

    Where that fails, whoever takes a task when its lease has run out is safe from us: what
    we still write has a stale epoch.
    """
    held = [(entry, entry.lease) for entry in entries if entry.live and entry.lease]
    if not held:
        return
    renewed = store.renew([each for _, each in held], store.now(), lease)
    for entry, had in held:
        # One that has ended meanwhile, or begun anew, has lost nothing.
        if had.task not in renewed and entry.lease is had and entry.live:
            log.warning("lease lost", **labels(had.task))
            entry.cancel()
