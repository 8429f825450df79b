"""Decides: reads definitions, checks them, plans their tasks, and changes target states.

In it: validation, planning, `offsets.py` (seen and altered; workers commit them), versions,
counts, the runtime's own keys. Never: a running task, Spark or HTTP.

``__init__.pyi`` lists what it offers. A name is imported when it is used first, so that a check
of a file does not wait for the store.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
