"""The demo: moves public flight data, checks the result, and says what to try next.

In it: data, definitions and an independent check. Never: a way to move data of its own; it runs
what a user would run.
"""

from headrace.demo.run import run

__all__ = ["run"]
