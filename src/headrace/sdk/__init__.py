"""All that the author of a plugin may import; ``__init__.pyi`` lists it.

A name is imported when it is used first, so that whoever needs an error class does not wait
for pyarrow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
