"""The demo: moves public flight data, checks the result, and says what to try next.

In it: data, definitions and an independent check. Never: anything that other rooms use.
"""

from headrace.demo.run import run

__all__ = ["run"]
