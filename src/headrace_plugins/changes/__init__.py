"""Change data capture for connectors: reads a log in a separate process, builds records.

Code shared by all change sources, for any database.
Never: code for one system; that belongs to its connector.
"""
