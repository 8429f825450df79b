"""Schedules jobs: a tick creates runs of due windows, or external schedulers wake jobs.

Any number of servers may tick on one store: each window gets only one run. Out of scope:
executing runs, and starting threads.
"""

from headrace.scheduler.airflow import Airflow
from headrace.scheduler.callbacks import (
    Callbacks,
    CallbackTokenError,
    NotAWindowError,
    WindowNotDueError,
)
from headrace.scheduler.dolphinscheduler import DolphinScheduler
from headrace.scheduler.external_scheduler import MissingEngine, Registrar, ScheduleEngine
from headrace.scheduler.tick import Scheduler

ENGINES: dict[str, type[ScheduleEngine]] = {
    "airflow": Airflow,
    "dolphinscheduler": DolphinScheduler,
}
"""The classes of external schedulers, by their type in the settings."""

__all__ = [
    "ENGINES",
    "Airflow",
    "CallbackTokenError",
    "Callbacks",
    "DolphinScheduler",
    "MissingEngine",
    "NotAWindowError",
    "Registrar",
    "ScheduleEngine",
    "Scheduler",
    "WindowNotDueError",
]
