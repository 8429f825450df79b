"""The SQLite sink."""
