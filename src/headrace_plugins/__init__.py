"""The built-in plugins, found by entry point like anyone else's.

In it: connectors, converters, transforms, predicates, providers, reporters, alert channels;
windows, target tables and mapping rules are shared by connectors.
Never: an import of the kernel; they see the SDK only.
"""
