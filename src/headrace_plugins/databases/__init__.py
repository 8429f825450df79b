"""Databases as connectors see them: addresses, sessions, catalogs, types, ways in and out.

Here is what the source and the sinks of databases share, each kind of database in a module.
Never: what is true of one system only outside of its module.
"""
