"""What a scraper of Prometheus gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.registry import Collector
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.metrics.book import Book


@dataclass
class Exposition(Collector):
    """Shows a book in the format that a scraper asks for: OpenMetrics, or the older text."""

    book: Book

    @override
    def collect(self) -> Iterable[Family]:
        families: dict[str, Family] = {}
        for sample in self.book.samples():
            metric = sample.metric
            family = families.get(metric.name)
            if family is None:
                family = Family(metric.name, metric.help, metric.kind.value)
                families[metric.name] = family
            family.add_sample(sample.name, dict(sample.labels), sample.value)
        return families.values()

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """Return the text and its content type, for an Accept header. Any thread may ask."""
        try:
            encoder, content_type = choose_encoder(accept or "")
        except (TypeError, ValueError):  # the version that is asked for is none
            encoder, content_type = choose_encoder("")
        # No name of ours is changed by any escaping, and with this one OpenMetrics takes half
        # of the time: 35 ms instead of 60 for two hundred connectors.
        return encoder(self, escaping=ALLOWUTF8), content_type  # type: ignore[call-arg]
