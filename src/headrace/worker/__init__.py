"""Runs tasks: `batch_loop.py` commits positions, `leases.py` takes and renews leases.

`restarts.py` decides when a failed task restarts. In scope: task scheduling on threads,
handling of failed tasks, job runs (`runs.py`) and sending alerts. Out of scope: definitions,
rows, and how a batch is moved.
"""

from headrace.worker.alert_sender import AlertSender, SendResult
from headrace.worker.batch_loop import BatchLoop, ToleranceGuard
from headrace.worker.capture_task import CaptureKeeping, CaptureTask
from headrace.worker.context import (
    StoredConnectorContext,
    StoredSchemas,
    StoredTaskContext,
    TopicReadings,
    application_of,
)
from headrace.worker.events import Events, Everyone, Measures, Outcome
from headrace.worker.leases import Owner, fence_dead_workers, living
from headrace.worker.reconciler import Planned, Reconciler
from headrace.worker.restarts import Restarts, Verdict
from headrace.worker.runs import NotWantedError, RunWorker
from headrace.worker.stalls import Stalls
from headrace.worker.task import BatchTask, CrashIsolation, Progress, Step, Task
from headrace.worker.worker import Worker

__all__ = [
    "AlertSender",
    "BatchLoop",
    "BatchTask",
    "CaptureKeeping",
    "CaptureTask",
    "CrashIsolation",
    "Events",
    "Everyone",
    "Measures",
    "NotWantedError",
    "Outcome",
    "Owner",
    "Planned",
    "Progress",
    "Reconciler",
    "Restarts",
    "RunWorker",
    "SendResult",
    "Stalls",
    "Step",
    "StoredConnectorContext",
    "StoredSchemas",
    "StoredTaskContext",
    "Task",
    "ToleranceGuard",
    "TopicReadings",
    "Verdict",
    "Worker",
    "application_of",
    "fence_dead_workers",
    "living",
]
