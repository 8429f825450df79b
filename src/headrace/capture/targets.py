"""Appends one capture's batch to all its topics, or to none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable

from headrace.model import Counts
from headrace.sdk import Mark, Schema
from headrace.sdk.delta import AddedFile
from headrace.sdk.deltalog import create_checkpoint
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location, sync
from headrace.sdk.mark import receipt_figures
from headrace.topics import Topic, Topics

_ABANDONED = "abandoned"
_NOBODY = -1
"""The epoch of marks that are burnt: no attempt is to take them for its own."""
_JOURNAL = Schema.struct({"batch": Schema.int64(optional=True)})
_CHECKPOINT_VERSIONS = 50
"""Reading a table's log takes 0.1-0.2 ms for each version after its last checkpoint."""


@dataclass(frozen=True, slots=True)
class Addition:
    """What a batch adds to one topic.

    Args:
        topic: The topic, which exists and whose folder holds the files.
        application: Names the writer there.
    """

    topic: str
    application: str
    files: Sequence[AddedFile]


class Targets:
    """The topics of one capture. Used by one thread at a time, in host and worker.

    A batch for the capture's own topic alone is decided by the one transaction that
    adds it there. Any other batch (several topics, or dead letters) is decided by a
    transaction in the capture's journal, a table beside the topics, whose receipt lists
    what each topic still has to take. Both kinds are fenced by Delta: of two
    transactions with one mark only the first is taken.
    """

    def __init__(self, folder: Location, topic: str, application: str) -> None:
        """Keep topics in ``folder``; ``topic`` is the capture's own."""
        self._folder = folder
        self._own = topic
        self._application = application
        self._load_tables()

    def topic(self, name: str) -> Topic:
        return self._topics.get(name)

    def files(self, additions: Sequence[Addition]) -> Iterator[Location]:
        """Yield the files that a batch adds."""
        for addition in additions:
            folder = self.topic(addition.topic).location
            yield from (folder / file.path for file in addition.files)

    def is_simple(self, additions: Sequence[Addition]) -> bool:
        """Return whether the capture's own topic decides the batch."""
        return [addition.topic for addition in additions] == [self._own]

    def prepare(self, additions: Sequence[Addition]) -> None:
        """Make sure that the deciding table exists, before the intent is stored.

        ``settle`` relies on it: a table that is not there has decided nothing.
        """
        if not self.is_simple(additions) and not self._journal.exists():
            self._journal.prepare(_JOURNAL)

    def commit(self, additions: Sequence[Addition], mark: Mark, counts: Counts) -> None:
        """Append the batch. Raises StaleEpochError when another owner settled it.

        Guarantee 2: the mark is in the transaction that decides.
        """
        if self.is_simple(additions):
            receipt = mark.receipt(asdict(counts))
            self._append(self.topic(self._own), additions[0].files, mark, receipt)
            return
        figures = {
            "counts": counts.to_json(),
            "additions": [asdict(a) for a in additions],
            "epoch": mark.epoch,
        }
        # The journal decides for all topics, so all their files are durable before it does.
        sync(self.files(additions), up_to=self._folder)
        self._append(self._journal, (), mark, mark.receipt(figures))
        self._roll_forward(additions, mark)

    def settle(self, mark: Mark) -> tuple[Counts, list[str]] | None:
        """Decide a batch whose end is unknown, for ever.

        Called by the worker after a crash, with the host's process gone or a newer
        epoch taken. Returns the counts and the topics when the batch is durable. Else
        it takes the batch's mark itself, so that an old host that still lives can no
        longer append, and returns None.
        """
        journal = self._fenced(self._journal, mark)
        if journal is not None:
            figures = receipt_figures(journal)
            additions = [_addition(entry) for entry in figures["additions"]]
            decider = figures.get("epoch", mark.epoch)  # older versions did not say
            self._roll_forward(additions, replace(mark, epoch=decider))
            return Counts.from_json(figures["counts"]), [a.topic for a in additions]
        # Only now: a batch that the journal holds may still have to enter this topic.
        own = self._fenced(self.topic(self._own), mark)
        if own is not None:
            return Counts.from_receipt(own), [self._own]
        return None

    def _fenced(self, table: Topic, mark: Mark) -> str | None:
        """Return the receipt of the batch, or None when the mark is now burnt."""
        if not table.exists():
            return None
        # When an old host comes first just now, its receipt is there.
        burnt = replace(mark, epoch=_NOBODY)
        with contextlib.suppress(StaleEpochError):
            table.append((), burnt, burnt.receipt({_ABANDONED: True}), datetime.now(UTC))
        receipt = table.receipt(mark)
        if receipt in {_ABANDONED, None}:  # as the text alone by older versions
            return None
        mark.require_range(receipt)
        return None if receipt_figures(receipt).get(_ABANDONED) else receipt

    def _roll_forward(self, additions: Sequence[Addition], mark: Mark) -> None:
        """Carry out what the attempt of ``mark`` has decided; others may do so as well."""
        for addition in additions:
            own = replace(mark, application=addition.application)
            topic = self.topic(addition.topic)
            if topic.receipt(own) != "":  # else it is so long ago that nobody knows by whom
                self._append(topic, addition.files, own, own.receipt({}), flushed=True)

    def _append(
        self,
        table: Topic,
        files: Sequence[AddedFile],
        mark: Mark,
        receipt: str,
        *,
        flushed: bool = False,
    ) -> None:
        now = datetime.now(UTC)
        version = table.append(files, mark, receipt, now, flushed=flushed).version
        if version % _CHECKPOINT_VERSIONS == 0:
            create_checkpoint(DeltaTable(str(table.location)))
            self._load_tables()  # one that is loaded does not profit from a checkpoint

    def _load_tables(self) -> None:
        self._topics = Topics(self._folder)
        self._journal = self._topics.journal(self._application)


def _addition(entry: dict[str, Any]) -> Addition:
    files = [AddedFile(**file) for file in entry["files"]]
    return Addition(entry["topic"], entry["application"], files)
