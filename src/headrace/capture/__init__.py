"""Plugin hosts: long-lived processes whose threads capture into topics, and their supervisor.

In it: both ends of the channel between a worker and a host. Never: Spark, or the store.
"""

from headrace.capture.process import (
    CaptureSpec,
    HostProcess,
    Message,
    Pace,
    error_from_json,
    refusal,
)
from headrace.capture.supervisor import HostSupervisor
from headrace.capture.targets import Targets

__all__ = [
    "CaptureSpec",
    "HostProcess",
    "HostSupervisor",
    "Message",
    "Pace",
    "Targets",
    "error_from_json",
    "refusal",
]
