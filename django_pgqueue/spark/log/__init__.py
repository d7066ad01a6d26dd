"""The log of topics, read by Spark: read.py all at once, or stream.py as it grows."""
