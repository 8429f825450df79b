"""A source and a sink for Delta tables.

Source: `reader.py` plans the batches, `history.py` reads the log, `frames.py` the files. Sink:
`sink.py` stages a batch, `columns.py` fits its columns to the table, `commit.py` commits, and
`table.py` creates and maintains the table and its files. Every commit of a batch stores the
batch's mark.
"""
