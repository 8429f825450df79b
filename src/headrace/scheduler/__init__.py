"""When: the tick that makes runs of windows that are due.

Any number of servers may tick over one store: a window gets one run, whoever is first.
Never: how a run is executed, or a thread that no one else starts.
"""

from headrace.scheduler.tick import Scheduler

__all__ = ["Scheduler"]
