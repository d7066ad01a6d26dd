"""
Measures of this queue, and of others beside it, on one server.

    python -m tests.benchmarks drain latency 'lanes_*'     # or all; --help
    python -m tests.benchmarks peers --runs 5
    python -m tests.benchmarks.where                       # the time of a job
    python -m tests.benchmarks.spark                       # see there
    python -m tests.benchmarks.page                        # fills the page

All of it works in databases that are made on the server of DATABASE_URL, or on the
embedded one, and are dropped at the end.

    database.py       the server, and its databases
    processes.py      producers and workers, each a process of its own
    cpu.py            processor time and memory of processes
    page.py, table.py the tables, for the terminal and for the page
    measured/         what docs/explanation/benchmarks.md shows

    measure.py        what a measure of this queue is, and what becomes of its pairs
    measures/         the measures, and the tasks for them
    scratch.py        the database and the workers of the measures

    peers/, peer.py   other products: versions, configurations and a program each
    agent/, node/     what the programs share, for Python and for Node.js
    environments.py   makes the environments of the peers, under build/
    peer_runs.py      runs, in each of which every peer has a turn
    turn.py           what is measured in a turn, in this order
    results.py        runs, medians, JSON; goals.py: ratios that this project wants

A measure runs the product and what it is compared with in pairs, one after the other,
so that a minute in which the machine is slow falls on both: the median of the pairs'
ratios holds. A run of the peers gives each one turn, for the same reason.

A program of a peer obeys three words: ``setup`` makes its tables, ``produce`` enqueues
when told to, ``work`` runs jobs until SIGTERM. Its task does nothing but note, in a
file that is shared with the command, which job ran and when. So whether all jobs ran,
and each once, is checked in every turn, and by the same code for all.
"""
