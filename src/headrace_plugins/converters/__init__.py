"""The built-in converters that do not use a schema registry.

In it: bytes to columns and back, as SQL or on Arrow. Never: a schema registry, or a topic.
"""
