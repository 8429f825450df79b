"""The Spark session of a process: its Java, its jars, its JVM, and its jobs.

In it: the code that starts, monitors and stops Spark. Never: a connector, or its rows.
"""

from headrace.spark.class_archive import prepare
from headrace.spark.drivers import Drivers
from headrace.spark.jvm import JvmFigures, JvmWatch
from headrace.spark.session import close_session, open_session
from headrace.spark.supervisor import DeathLimit, SparkJobs, SparkSupervisor, has_lost_jvm

__all__ = [
    "DeathLimit",
    "Drivers",
    "JvmFigures",
    "JvmWatch",
    "SparkJobs",
    "SparkSupervisor",
    "close_session",
    "has_lost_jvm",
    "open_session",
    "prepare",
]
