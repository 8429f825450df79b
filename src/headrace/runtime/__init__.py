"""The wiring: builds the objects of a process from its settings, and runs a server.

In it: dependency injection; previews, replays, verification, giving up of batches; a server's
own health, log and backups. Never: a rule about connectors, SQL, or a row.
"""
