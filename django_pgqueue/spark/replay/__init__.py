"""
Replay: what was, once more, and history for who is new.

    asked.py     what the options of the pipeline job replay say
    log.py       from a topic's log, inside of the database
    archive.py   from the archive, inside of the database
    files.py     from files of the jobs ingest and export, by Spark
    named.py     a write of the database's own, once under a name
"""
