"""The built-in transforms: Kafka Connect's, RocketMQ Connect's and our own.

In it: records to records, as SQL expressions or on Arrow. Never: I/O, but for what Lookup reads
and the state that Deduplicate keeps.

``__init__.pyi`` lists what it offers. A transform is imported when it is used first: the HTTP
client of Lookup alone takes a while.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
