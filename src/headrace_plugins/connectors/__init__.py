"""The built-in connectors."""
