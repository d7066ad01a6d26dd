"""
Scale: what stays fast, and what waits for nobody, when the tables are large.

What each statement may read is in tests/queues/test_plans.py. This measures times, on a
database of its own with ten million archived jobs and a million that wait:

    python -m tests.scale load                  fill it; again, to go on
    python -m tests.scale measure pages         one figure, or several; none: all
    python -m tests.scale drop

From the rows to the figures: large.py fills the database, backlogs.py makes the shapes
of what waits; figures.py and purging.py measure; fleet.py runs the workers for them.
"""
