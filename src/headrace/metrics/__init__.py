"""Metrics of workers, for Prometheus and for reporters.

In it: every metric with its name and its help. Never: a decision that depends on a metric.
"""

from headrace.metrics.reporting import Reporter, Reporting
from headrace.metrics.sampling import Processes, Sampler
from headrace.metrics.series import METRICS
from headrace.metrics.worker_metrics import Exposition, JobMetrics, WorkerMetrics

__all__ = [
    "METRICS",
    "Exposition",
    "JobMetrics",
    "Processes",
    "Reporter",
    "Reporting",
    "Sampler",
    "WorkerMetrics",
]
