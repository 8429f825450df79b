"""What a scraper of Prometheus gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from typing_extensions import override

from headrace.metrics.series import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.metrics.book import Book
    from headrace.sdk import Metric

_END = "# EOF\n"


class _Nothing(Collector):
    """A metric without values, of which the library tells the type and the help."""

    def __init__(self, metric: Metric) -> None:
        self._family = Family(metric.name, metric.help, metric.kind.value)

    @override
    def collect(self) -> Iterable[Family]:
        return [self._family]


@dataclass
class Exposition:
    """Shows a book in the format that a scraper asks for: OpenMetrics, or the older text.

    The library negotiates and says what each metric is; the lines of values come from the
    book, which has them ready, as writing two hundred connectors anew takes long.
    """

    book: Book
    _headers: dict[bool, dict[str, str]] = field(default_factory=dict)

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """Return the text and its content type, for an Accept header. Any thread may ask."""
        try:
            encoder, content_type = choose_encoder(accept or "")
        except (TypeError, ValueError):  # the version that is asked for is none
            encoder, content_type = choose_encoder("")
        is_open = content_type.startswith("application/openmetrics-text")
        headers = self._headers.get(is_open)
        if headers is None:
            made = {metric.name: encoder(_registry(metric)).decode() for metric in METRICS}
            headers = self._headers[is_open] = made
        texts = self.book.texts()
        parts = []
        for name, header in headers.items():
            if lines := texts.get(name):
                parts.append(header.removesuffix(_END))
                parts += lines
        if is_open:
            parts.append(_END)
        return "".join(parts).encode(), content_type


def _registry(metric: Metric) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Nothing(metric))
    return registry
