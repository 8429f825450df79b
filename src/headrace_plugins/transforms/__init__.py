"""The built-in transforms: Kafka Connect's, RocketMQ Connect's and Headrace's own.

In it: records to records, as SQL expressions or on Arrow. Never: I/O, except Lookup's reads
and Deduplicate's state.

``__init__.pyi`` lists the exports. A transform is imported on first use, because importing
Lookup's HTTP client alone takes a while.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
