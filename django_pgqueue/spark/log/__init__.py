"""
The log of topics, read by Spark: all at once, or as a stream.

    bounds.py     topics, horizons, days: what a read must know before it begins
    starting.py   where a read begins and ends: earliest, latest, a time, positions
    walk.py       how far so many messages go, counted along the index
    read.py       spark.read: which task reads what
    offsets.py    how far a stream is, as its checkpoint keeps it
    stream.py     spark.readStream
    check.py      what a task asks, so that it never passes over anything
"""
