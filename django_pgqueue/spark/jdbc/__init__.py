"""
What frames.py reads by: Spark's own JDBC source, where PostgreSQL's driver is.

    driver.py     where the driver is, and what to do where there is none
    address.py    a DSN of libpq's as an address of JDBC's
    divide.py     the ids that each task reads, by the statistics of PostgreSQL
    snapshot.py   one snapshot for all tasks, and for several tables
    mask.py       secrets, masked in the columns that a query uses
"""
