"""The built-in plugins, found by entry point like anyone else's."""
