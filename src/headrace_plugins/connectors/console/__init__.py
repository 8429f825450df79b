"""A sink that prints records."""
