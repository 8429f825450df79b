"""Files as a source and as a sink: sets of files, files that grow, folders and line files."""

from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.file.source import FileSource

__all__ = ["FileSink", "FileSource"]
