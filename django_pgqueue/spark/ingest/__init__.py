"""
Ingest: batches of the log become files, each of them once.

    parquet.py     files, moved to their places when their batch is whole
    delta.py       a table of Delta Lake, a commit for each batch
    checkpoint.py  the stream's checkpoint, beside the files
"""
