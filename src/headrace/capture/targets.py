"""Appends one capture's batch to all its topics, or to none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headrace.model import Counts
from headrace.sdk import Mark, Schema
from headrace.sdk.delta import AddedFile
from headrace.sdk.deltalog import create_checkpoint, load_table
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location, sync
from headrace.sdk.mark import receipt_figures
from headrace.topics import Topic, Topics

_ABANDONED = "abandoned"
_NOBODY = -1
"""The epoch of marks of abandoned batches: no attempt may mistake them for its own."""
_JOURNAL = Schema.struct({"batch": Schema.int64(optional=True)})
_CHECKPOINT_VERSIONS = 50
"""Reading a table's log takes 0.1-0.2 ms for each version after its last checkpoint."""


@dataclass(frozen=True, slots=True)
class Addition:
    """The files that a batch adds to one topic.

    Args:
        topic: The topic, which exists and whose folder contains the files.
        application: The writer's name in the topic's marks.
    """

    topic: str
    application: str
    files: Sequence[AddedFile]


class Targets:
    """The topics of one capture, in host and worker. Not thread-safe.

    A batch for only the capture's own topic is committed by the transaction that adds it
    there. Any other batch (several topics, or dead letters) is committed by a transaction in
    the capture's journal, a table beside the topics. Its receipt lists the files that must
    still be added to each topic. Delta fences both: of two transactions with the same mark only
    the first succeeds.
    """

    def __init__(self, folder: Location, topic: str, application: str) -> None:
        """Open the topics in ``folder``; ``topic`` is the capture's own."""
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
        """Return whether the transaction in the capture's own topic commits the batch."""
        return [addition.topic for addition in additions] == [self._own]

    def prepare(self, additions: Sequence[Addition]) -> None:
        """Create the journal if the batch needs it, before the intent is stored.

        ``settle`` relies on it: a table that does not exist has committed nothing.
        """
        if not self.is_simple(additions) and not self._journal.exists():
            self._journal.prepare(_JOURNAL)

    def commit(self, additions: Sequence[Addition], mark: Mark, counts: Counts) -> None:
        """Append the batch. Raises StaleEpochError if another owner has settled it.

        Guarantee 2: the mark is in the transaction that commits the batch.
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
        # The journal commits for all topics, so all their files must be durable first.
        sync(self.files(additions), up_to=self._folder)
        self._append(self._journal, (), mark, mark.receipt(figures))
        self._roll_forward(additions, mark)

    def settle(self, mark: Mark) -> tuple[Counts, list[str]] | None:
        """Commit or abandon an in-doubt batch permanently.

        The worker calls it after a crash, when the host's process has ended or a newer epoch
        is taken. Returns the counts and the topics if the batch is durable. Otherwise it uses
        up the batch's mark, so that an old host that is still running can no longer append,
        and returns None.
        """
        journal = self._fenced(self._journal, mark)
        if journal is not None:
            figures = receipt_figures(journal)
            additions = [_addition(entry) for entry in figures["additions"]]
            self._roll_forward(additions, replace(mark, epoch=figures["epoch"]))
            return Counts.from_json(figures["counts"]), [a.topic for a in additions]
        # Not before: a batch in the journal may still have to be added to this topic.
        own = self._fenced(self.topic(self._own), mark)
        if own is not None:
            return Counts.from_receipt(own), [self._own]
        return None

    def _fenced(self, table: Topic, mark: Mark) -> str | None:
        """Return the receipt of the batch, or None if the batch is now abandoned."""
        if not table.exists():
            return None
        # If an old host commits first, its receipt is found below.
        burnt = replace(mark, epoch=_NOBODY)
        with contextlib.suppress(StaleEpochError):
            table.append((), burnt, burnt.receipt({_ABANDONED: True}), datetime.now(UTC))
        receipt = table.receipt(mark)
        if receipt is None:
            return None
        mark.require_range(receipt)
        return None if receipt_figures(receipt).get(_ABANDONED) else receipt

    def _roll_forward(self, additions: Sequence[Addition], mark: Mark) -> None:
        """Add the files that the attempt of ``mark`` has committed; others may do so too."""
        for addition in additions:
            own = replace(mark, application=addition.application)
            topic = self.topic(addition.topic)
            if topic.receipt(own) != "":  # otherwise added long ago, and the receipt is lost
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
            create_checkpoint(load_table(table.location))
            self._load_tables()  # a loaded table does not profit from a checkpoint

    def _load_tables(self) -> None:
        self._topics = Topics(self._folder)
        self._journal = self._topics.journal(self._application)


def _addition(entry: dict[str, Any]) -> Addition:
    files = [AddedFile(**file) for file in entry["files"]]
    return Addition(entry["topic"], entry["application"], files)
