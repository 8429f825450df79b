"""The demo: moves public flight data, checks the result, and says what to try next.

In it: data, definitions and an independent check. Never: anything but what its command needs.
"""

from headrace.demo.run import run

__all__ = ["run"]
