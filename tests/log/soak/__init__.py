"""
Soak: the promise that a log never skips, tried with publishers that do their worst.

Eight processes publish in transactions of every shape: slow ones, savepoints kept and
rolled back, bulk and single, in SQL, prepared, of several topics, in READ COMMITTED and
REPEATABLE READ. Plain readers ask for the horizon and read up to it, meanwhile. Then
what they have seen is compared with what is in the log, and that with the publishers'
own books.

    python -m tests.log.soak                       100,000 messages
    python -m tests.log.soak --messages 5000 --seed 7 --start 4294967000
    python -m tests.log.soak --broken no-locks     which must be found out

publishers.py is the load, readers.py reads, verdict.py judges, broken.py has functions
without one of their protections, run.py puts them together in a scratch database.
"""
