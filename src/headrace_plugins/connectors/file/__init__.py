"""Files as a source and as a sink: sets of files, growing files, folders and line files.

Sets: `source.py`, `fileset.py` (each file once), `listing.py`; their content: `formats.py`,
`columns.py` and `inference.py`, `record_ends.py`, `text_parts.py` and a reader of each format.
Growing files: `growing.py`, `tail.py`, `rotation.py`, `logfile.py`. Sinks: `folder.py`,
`replacement.py`, `linefile.py`. Rule: never guess which rows are valid.
"""
