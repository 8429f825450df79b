"""Headrace moves data between systems with one engine, Apache Spark."""

__all__ = ["__version__"]

__version__ = "0.1.0"
