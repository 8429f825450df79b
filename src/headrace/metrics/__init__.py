"""Measures: what workers tell, as series for Prometheus and for reporters."""

from headrace.metrics.book import Book
from headrace.metrics.exposition import Exposition
from headrace.metrics.processes import Processes
from headrace.metrics.reporting import Reporter, Reporting
from headrace.metrics.sampling import Sampler
from headrace.metrics.series import METRICS

__all__ = ["METRICS", "Book", "Exposition", "Processes", "Reporter", "Reporting", "Sampler"]
