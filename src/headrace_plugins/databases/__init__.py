"""Databases for connectors: addresses, sessions, catalogs, types, reading and writing.

Code shared by the database sources and sinks, with a module for each kind of database.
Never: code for one system outside its module.
"""
