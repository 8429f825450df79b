"""The built-in connectors.

In it: a package for each system. Never: what another connector does.
"""
