"""The wiring: builds the objects of a process from its settings, and runs a server.

In it: which object gets which; previews, replays, comparisons, batches that are given up; what
a server shows of itself: health, log, backups. Never: a rule about connectors, SQL, or a row.
"""
