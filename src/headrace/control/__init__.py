"""The control plane: parses and checks definitions, plans tasks, and sets target states.

In scope: validation, planning of tasks and copies, `offsets.py` (viewing, altering and giving
up a batch; workers commit them), versions, counts, the runtime's own keys. Out of scope:
running tasks, Spark and HTTP.

``__init__.pyi`` lists the public names. They are imported lazily, so that checking a file does
not wait for the import of the store.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
