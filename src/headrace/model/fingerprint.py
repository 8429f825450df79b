"""What decides which records a range gives, as digests that intents and receipts keep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.sdk import StateError
from headrace.sdk.mark import receipt_figures

_CHAIN, _SOURCE = "chain", "source"
_BACK = "Set them back to what they were until the batch is finished."


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Tells whether a batch in doubt would be made of the same records as before.

    Args:
        chain: A digest of the transforms and converters; nothing where it is not known.
        source: A digest of the value of each key that decides the rows of the source, without
            those that have their default; None where that is not known, as in what earlier
            versions have stored.
    """

    chain: str = ""
    source: Mapping[str, str] | None = None

    @classmethod
    def of_receipt(cls, receipt: str) -> Fingerprint:
        """Return that of the attempt which has written a receipt."""
        figures = receipt_figures(receipt)
        return cls(figures.get(_CHAIN, ""), figures.get(_SOURCE))

    def figures(self) -> dict[str, Any]:
        """Return what a receipt is to keep."""
        figures = {_CHAIN: self.chain or None, _SOURCE: self.source}
        return {name: value for name, value in figures.items() if value is not None}

    @classmethod
    def of_text(cls, text: str) -> Fingerprint:
        """Return what gave a text."""
        chain, _, source = text.partition(" ")
        return cls(chain, json.loads(source) if source else None)

    def to_text(self) -> str:
        """Return it in one line, for a batch's intent."""
        if self.source is None:
            return self.chain
        return f"{self.chain} {json.dumps(dict(self.source), sort_keys=True)}"

    def has_other_chain(self, before: Fingerprint) -> bool:
        return bool(before.chain and self.chain) and before.chain != self.chain

    def changed_keys(self, before: Fingerprint) -> list[str]:
        """Return the source's keys that have other values than before, as far as is known."""
        if before.source is None or self.source is None:
            return []
        keys = sorted({*before.source, *self.source})
        return [key for key in keys if before.source.get(key) != self.source.get(key)]

    def require_same(self, before: Fingerprint, where: str) -> None:
        """Raise StateError if a batch that is in ``where`` already had other records."""
        if self.has_other_chain(before):
            raise changed_chain(where)
        if keys := self.changed_keys(before):
            raise StateError(
                problem=f"The unfinished batch is in {where} already, and was read with other "
                f"values of the source's {_listed(keys)}.",
                fix=_BACK,
            )

    @classmethod
    def require_same_routing(cls, routing: str, before: str) -> None:
        """Raise StateError if records of a batch may go to other topics than before.

        Guarantee 2: each topic has a mark of its own; which rows it stands for is known only
        to the source and the chain that have divided them.

        Args:
            routing: As ``to_text`` gives it; nothing where there is one topic.
            before: The same, of the batch's intent.
        """
        now, then = cls.of_text(routing), cls.of_text(before)
        if now.chain != then.chain:
            raise StateError(
                problem="Other transforms or converters than those of the unfinished batch "
                "decide which topic each record goes to.",
                fix=_BACK,
            )
        if keys := now.changed_keys(then):
            raise StateError(
                problem="The records of the unfinished batch, which go to several topics, were "
                f"read with other values of the source's {_listed(keys)}.",
                fix=_BACK,
            )


NOTHING_KNOWN = Fingerprint()


def changed_chain(where: str, what: str = "transforms or converters") -> StateError:
    """Return the error of a batch in doubt of which a part was made otherwise."""
    problem = f"The unfinished batch is in {where} already, as other {what} made it."
    return StateError(problem, fix=_BACK)


def _listed(keys: list[str]) -> str:
    *some, last = keys
    return f"{', '.join(some)} and {last}" if some else last
