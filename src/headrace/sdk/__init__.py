"""What plugins are written against; ``__init__.pyi`` lists it.

Sources, sinks, transforms, converters and providers, with what they are given and raise. Their
tools have modules of their own: ``config`` (settings), ``arrow`` and ``sparktypes`` (schemas in
other forms), ``sqltext`` (SQL for transforms), ``http`` (APIs), ``testing`` (the kit).

Never: an import of another package of Headrace, or of Spark where a plugin does not ask for it.
A name is imported when it is used first, so that code that needs an error class does not wait
for pyarrow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
