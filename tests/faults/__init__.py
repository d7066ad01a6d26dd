"""
Faults: the promise of the queue, tried while everything around it fails.

A *row* of the matrix names a fault, how often it happens, what runs meanwhile and what
must hold. A run of a row has two phases. In the first, client processes enqueue jobs,
workers run them, and faults happen by a plan that a seed fixes. Then everything is
healed, and in the second phase the backlog must be gone before a deadline.

What happened is noted outside of the database, in ledgers, and inside of it, by a
trigger that keeps every change of every job. The verdict compares the two. A run that
no fault has bitten does not count.

    python -m tests.faults                      all rows, full size
    python -m tests.faults --row K1 --seed 7    one of them, by the same plan as before
    python -m tests.faults --tenth              a tenth of the size, as the tests do
    python -m tests.faults --broken all         broken builds, which must be found out

From the plan to the verdict: rows.py says what is tried, plan.py when and how;
stage.py is the place (server.py, fleet.py, clients.py, workload.py, ledger.py,
history.py); injectors.py does the harm; run.py lets it happen; evidence.py collects
what is left, verdict.py judges it, report.py tells it. broken.py breaks the package.
"""
