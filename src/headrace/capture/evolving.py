"""Keeps a capture's topics in step with the schemas of its records, as its policy says."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.capture.rows import Slices, TopicRows, rejected_row, sieve
from headrace.evolution import reconcile
from headrace.evolution.apply_arrow import moved_array
from headrace.sdk.arrow import conform, to_arrow_field
from headrace.sdk.schema_evolution import Handling

if TYPE_CHECKING:
    from headrace.capture.rows import Part, Rejected
    from headrace.evolution import Handled, Move, Reconciled
    from headrace.sdk import Schema
    from headrace.sdk.schema_evolution import EvolutionPolicy


log = logging.getLogger("headrace")


@dataclass
class HostEvolution:
    """What one capture does about changes of schemas. Used by its thread.

    Args:
        policy: How they are handled.
    """

    policy: EvolutionPolicy
    _reconciled: dict[str, tuple[Schema, Schema, Reconciled]] = field(default_factory=dict)
    _told: set[tuple[str, Handled]] = field(default_factory=set)

    def fitted(
        self, topic: str, rows: TopicRows, known: Schema | None
    ) -> tuple[TopicRows, list[Rejected]]:
        """Return rows with the schemas that their topic is to be given, and what does not fit.

        Schemas are taken up in the order of the rows: each is a change of the one before.

        Args:
            topic: The topic.
            rows: What it is to get.
            known: The schema of its values; None while it has none.

        Raises:
            SchemaChangeError: The policy rejects a change.
        """
        fitted, rejected = TopicRows(), []
        for part in rows.parts:
            if known is None or known == part.value:
                known = part.value
                fitted.parts.append(part)
                continue
            reconciled = self._reconcile(topic, known, part.value)
            move = partial(_moved, part, reconciled.move)
            parts, bad = sieve(Slices(part.batch), move)
            known = reconciled.schema
            fitted.parts += parts
            rejected += [rejected_row(topic, part.batch.slice(at, 1), why) for at, why in bad]
        return fitted, rejected

    def _reconcile(self, topic: str, known: Schema, brought: Schema) -> Reconciled:
        # Whether the value as a whole may be null is no matter of the topic's schema.
        known = known.replaced(optional=brought.optional)
        before = self._reconciled.get(topic)
        if before is None or before[:2] != (known, brought):
            before = known, brought, reconcile(known, brought, self.policy)
            self._reconciled[topic] = before
        for handled in before[2].handled:
            self._tell(topic, handled)
        return before[2]

    def _tell(self, topic: str, handled: Handled) -> None:
        """Say once in a run what becomes of a change."""
        if (topic, handled) in self._told:
            return
        self._told.add((topic, handled))
        level = logging.WARNING if handled.handling is Handling.IGNORE else logging.INFO
        log.log(level, "schema change in %s: %s: %s", topic, handled.change, handled.handling)


def _moved(part: Part, move: Move, some: Any) -> Part:
    if move.source is None or not move.is_needed:
        return replace(part, batch=some.batch, value=move.target)
    column = pa.schema([to_arrow_field("value", move.source.replaced(optional=True))])
    value = moved_array(move, conform(some.batch.select(["value"]), column).column(0))
    place = some.batch.schema.get_field_index("value")
    return replace(part, batch=some.batch.set_column(place, "value", value), value=move.target)
