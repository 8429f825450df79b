"""Digests of the configuration that determines a batch's records, for intents and receipts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.sdk import StateError
from headrace.sdk.mark import receipt_figures

_CHAIN, _SOURCE = "chain", "source"
_BACK = "Restore their previous values until the batch is finished."


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Detects whether a retry of an in-doubt batch would have the same records as before.

    Args:
        chain: A digest of the transforms and converters; empty if unknown.
        source: A digest of the value of each key that determines the source's rows, except
            keys with their default value; None if unknown, as in data that earlier versions
            stored.
    """

    chain: str = ""
    source: Mapping[str, str] | None = None

    @classmethod
    def of_receipt(cls, receipt: str) -> Fingerprint:
        """Return the fingerprint of the attempt that wrote a receipt."""
        figures = receipt_figures(receipt)
        return cls(figures.get(_CHAIN, ""), figures.get(_SOURCE))

    def figures(self) -> dict[str, Any]:
        """Return the fields to store in a receipt."""
        figures = {_CHAIN: self.chain or None, _SOURCE: self.source}
        return {name: value for name, value in figures.items() if value is not None}

    @classmethod
    def of_text(cls, text: str) -> Fingerprint:
        """Parse the result of ``to_text``."""
        chain, _, source = text.partition(" ")
        return cls(chain, json.loads(source) if source else None)

    def to_text(self) -> str:
        """Serialize the fingerprint to one line, for a batch's intent."""
        if self.source is None:
            return self.chain
        return f"{self.chain} {json.dumps(dict(self.source), sort_keys=True)}"

    def has_other_chain(self, before: Fingerprint) -> bool:
        return bool(before.chain and self.chain) and before.chain != self.chain

    def changed_keys(self, before: Fingerprint) -> list[str]:
        """Return the source's keys whose values have changed; none if one side is unknown."""
        if before.source is None or self.source is None:
            return []
        keys = sorted({*before.source, *self.source})
        return [key for key in keys if before.source.get(key) != self.source.get(key)]

    def require_same(self, before: Fingerprint, where: str) -> None:
        """Raise StateError if a batch that is already in ``where`` had other records."""
        if self.has_other_chain(before):
            raise changed_chain(where)
        if keys := self.changed_keys(before):
            raise StateError(
                problem=f"The unfinished batch is already in {where}, and was read with other "
                f"values of the source's {_listed(keys)}.",
                fix=_BACK,
            )

    @classmethod
    def require_same_routing(cls, routing: str, before: str) -> None:
        """Raise StateError if records of a batch may go to other topics than before.

        Guarantee 2: each topic has its own mark. Which rows the mark covers depends on the
        source and the chain that divided them.

        Args:
            routing: The result of ``to_text``; empty if there is only one topic.
            before: The same, from the batch's intent.
        """
        now, then = cls.of_text(routing), cls.of_text(before)
        if now.chain != then.chain:
            raise StateError(
                problem="The transforms or converters, which determine each record's topic, "
                "have changed since the unfinished batch.",
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
    """Return the error for an in-doubt batch that was partly written with another chain."""
    problem = f"The unfinished batch is already in {where}, written with other {what}."
    return StateError(problem, fix=_BACK)


def _listed(keys: list[str]) -> str:
    *some, last = keys
    return f"{', '.join(some)} and {last}" if some else last
