"""Does: holds leases, runs batch loops and captures, retries."""

from headrace.worker.capture import CaptureKeeping, CaptureTask
from headrace.worker.context import (
    StoredConnectorContext,
    StoredLedger,
    StoredSchemas,
    StoredTaskContext,
)
from headrace.worker.hosts import HostSupervisor
from headrace.worker.loop import BatchLoop, Flow, Reader
from headrace.worker.owners import Owner
from headrace.worker.retry import Backoff
from headrace.worker.task import BatchTask, Progress, Step, Task
from headrace.worker.tolerance import ToleranceGuard
from headrace.worker.worker import Events, Outcome, Worker

__all__ = [
    "Backoff",
    "BatchLoop",
    "BatchTask",
    "CaptureKeeping",
    "CaptureTask",
    "Events",
    "Flow",
    "HostSupervisor",
    "Outcome",
    "Owner",
    "Progress",
    "Reader",
    "Step",
    "StoredConnectorContext",
    "StoredLedger",
    "StoredSchemas",
    "StoredTaskContext",
    "Task",
    "ToleranceGuard",
    "Worker",
]
