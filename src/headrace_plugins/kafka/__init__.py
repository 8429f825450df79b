"""What Kafka Connect's own transforms and converters mean, for the plugins that do the same.

Java's regular expressions and date patterns, headers, and the texts of values. No plugin of a
system and nothing that only the runtime needs.
"""
