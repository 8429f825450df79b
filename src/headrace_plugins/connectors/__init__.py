"""The built-in connectors.

In it: a module or a package for each system. Never: what another connector does.
"""
