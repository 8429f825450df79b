"""Converters whose schemas are in a schema registry, and what asks one.

It imports nothing by itself, so that whoever needs the registry's nouns does not wait for a
converter.
"""
