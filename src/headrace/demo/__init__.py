"""The demo: moves public flight data, checks the result, and says what to try next."""

from headrace.demo.run import run

__all__ = ["run"]
