"""Converters with schemas in a schema registry, and the registry client.

In it: Avro, JSON Schema and Protobuf, Confluent's wire format, the client. Never: the server of
a registry. This package imports nothing, so the registry's types can be imported without a
converter.
"""
