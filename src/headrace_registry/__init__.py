"""The schema registry: subjects, versions and ids, compatibility, and Confluent's REST API.

A package beside the kernel, which finds it by entry points: `headrace.commands` for its
command, `headrace.schema_registry` for converters. In it: everything that only the registry
does, including its SQL and HTTP. Never: Spark, a connector, or imports of the kernel's packages
that the contracts of import-linter do not allow.
"""
