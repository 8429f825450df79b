"""Tries a chain of transforms on a few records given as JSON."""

from headrace.dataplane.trial.run import try_chain

__all__ = ["try_chain"]
