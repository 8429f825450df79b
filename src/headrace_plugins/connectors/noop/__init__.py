"""A sink that discards all records, for measurements."""
