"""
Writing: rows of a DataFrame become jobs or messages, all of them or none.

    options.py     what .option(…) may say, checked before anything is written
    parts.py       what a job or a message is made of
    columns.py     which column of the DataFrame is what of it
    rows.py        the rows of a batch, checked as delay() checks, as text for COPY
    texts.py       one column of them
    json_text.py   Arrow's values as the JSON that a task reads
    json_given.py  JSON that the DataFrame has as text, checked
    aside.py       rows that were refused, in files beside
    session.py     a session of the database, through psycopg
    journal.py     the row that says what became of a write
    staged.py      rows wait in a table of the write; one transaction moves them
    move.py        messages of a stage are published, or handed to one receiver
    reap.py        finishes what a driver has left that died
    writer.py      what Spark calls, on executors and on the driver
    result.py      what became of a write, for the caller
    once.py        a write under a name, once
    stream.py      batches of a streaming query, each of them once
"""
