"""Ingest: batches of the log become files, each of them once; a format, a file."""
