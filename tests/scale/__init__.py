"""
Scale: what stays fast, and what waits for nobody, when the tables are large.

The tests fill the tables with PGQUEUE_SCALE_ROWS rows, a hundred thousand by default,
and look at plans and pages, which are facts, rather than at times. What each statement
may read is in tests/queues/test_plans.py.

By hand, the same on a database of its own, with ten million archived jobs, a million
that wait, and with times:

    python -m tests.scale load                  fill it; again, to go on
    python -m tests.scale measure pages         one figure, or several; none: all
    python -m tests.scale drop

From the rows to the figures: large.py fills the database, backlogs.py makes the shapes
of what waits; figures.py and purging.py measure; fleet.py runs the workers for them.
"""
