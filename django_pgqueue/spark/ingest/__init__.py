"""
Ingest: batches of the log become files, each of them once.

    parquet.py     files, moved to their places when their batch is whole
    delta.py       a table of Delta Lake, a commit for each batch
    rewrite.py     files of it are replaced by others, beside an ingest that goes on
    files.py       what compact and erase do with them
"""
