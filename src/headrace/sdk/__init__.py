"""The public API for plugins; ``__init__.pyi`` lists the exported names.

It contains the base classes of sources, sinks, transforms, converters and providers, and the
types of their arguments and errors. Helpers are in separate modules: ``config`` (settings),
``arrow`` and ``sparktypes`` (schema conversion), ``sqltext`` (SQL for transforms), ``http``
(HTTP APIs), ``testing`` (the acceptance kit).

This package must not import other Headrace packages, nor Spark unless a plugin asks for it.
Names are imported lazily, so code that needs only an error class does not load pyarrow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
