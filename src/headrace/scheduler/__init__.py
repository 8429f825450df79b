"""When: the tick that makes runs of windows that are due, and outside schedulers that wake us.

Any number of servers may tick over one store: a window gets one run, whoever is first.
Never: how a run is executed, or a thread that no one else starts.
"""

from headrace.scheduler.airflow import Airflow
from headrace.scheduler.callbacks import (
    Callbacks,
    CallbackTokenError,
    NotAWindowError,
    WindowNotDueError,
)
from headrace.scheduler.dolphinscheduler import DolphinScheduler
from headrace.scheduler.engines import MissingEngine, Registrar, ScheduleEngine
from headrace.scheduler.tick import Scheduler

ENGINES: dict[str, type[ScheduleEngine]] = {
    "airflow": Airflow,
    "dolphinscheduler": DolphinScheduler,
}
"""The classes of outside schedulers by their types in the settings."""

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
