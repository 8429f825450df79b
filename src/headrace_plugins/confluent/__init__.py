"""Converters whose schemas are in a schema registry, and what asks one.

In it: Avro, JSON Schema and Protobuf, Confluent's wire form, the client. Never: the server of a
registry. It imports nothing by itself, so that the registry's nouns can be had without a
converter.
"""
