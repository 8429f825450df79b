"""Files as a source and as a sink: sets of files, files that grow, folders and line files.

Sets: `source.py`, `fileset.py` (each file once), `listing.py`; what is in them: `formats.py`,
`columns.py` and `inference.py`, `record_ends.py`, `text_parts.py` and a reader of each format.
Growing files: `growing.py`, `tail.py`, `rotation.py`, `logfile.py`. Sinks: `folder.py`,
`replacement.py`, `linefile.py`. Never: which rows are good is decided by a guess.
"""

from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.file.source import FileSource

__all__ = ["FileSink", "FileSource"]
