"""The plugin host: long-lived processes whose threads capture into topics."""

from headrace.dataplane.host.channel import Message, error_from_json, error_to_json
from headrace.dataplane.host.process import HostProcess
from headrace.dataplane.host.spec import CaptureSpec, Pace
from headrace.dataplane.host.targets import Targets

__all__ = [
    "CaptureSpec",
    "HostProcess",
    "Message",
    "Pace",
    "Targets",
    "error_from_json",
    "error_to_json",
]
