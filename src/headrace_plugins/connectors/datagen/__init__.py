"""A generator of rows: the source for tests, demonstrations and measurements."""
