"""Databases for connectors: addresses, sessions, catalogs, types, reading and writing.

Code shared by the database sources and sinks, and the modules of each kind of database.
Never: code for one system outside its modules.
"""
