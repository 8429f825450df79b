"""The schema registry: subjects, versions and ids, compatibility, and Confluent's REST API.

It stands beside the kernel, which finds it by entry point: `headrace.commands` has its command,
`headrace.schema_registry` what converters use. In it: all that only the registry does, its SQL
and HTTP too. Never: Spark, a connector, or another room of the kernel than those that the
contracts of import-linter name.
"""
