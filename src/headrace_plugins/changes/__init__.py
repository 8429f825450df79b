"""Change capture as connectors see it: a log read by a process of its own, and its records.

Here is what sources of changes share, whatever database they follow.
Never: what is true of one system only; that is in its connector.
"""
