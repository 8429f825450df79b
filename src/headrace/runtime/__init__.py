"""The wiring: builds everything from settings, and runs a server.

In it: which object gets which. Never: a decision, SQL, or a row.
"""
