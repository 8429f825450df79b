"""The demo: copies public flight data, checks the result, and shows what to try next.

In it: data, definitions and an independent check. Never: its own code to copy data; it runs the
same commands as a user.
"""

from headrace.demo.run import run

__all__ = ["run"]
