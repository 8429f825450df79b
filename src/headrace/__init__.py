"""Headrace brings data to and from every system over one engine, Apache Spark."""

__all__ = ["__version__"]

__version__ = "0.1.0"
