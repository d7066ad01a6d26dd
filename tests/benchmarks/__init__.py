"""
This queue beside others, on one server and in one run.

    python -m tests.benchmarks --runs 5 --json build/benchmarks/peers.json

Every peer is installed from its package registry into an environment of its own, at
the versions pinned beside it, and works in a database of its own on the same server.
A *run* gives each peer one turn, in order; figures are medians over the runs, so that a
minute in which the machine is slow falls on all peers alike.

    __main__.py       the command
    peer.py           what a peer is, and how it may be configured
    peers/            one folder a peer: its versions, and its program
    agent/, node/     what the programs share, for Python and for Node.js
    environments.py   makes the environments, under build/
    database.py       the server, and one database a peer
    processes.py      a producer and workers, in the peer's environment
    turn.py           what is measured, in this order
    cpu.py            processor time of workers and of their backends
    results.py        runs, medians, JSON
    table.py          the tables, for the terminal and for the page
    measured.json     what docs/explanation/benchmarks.md shows

A program of a peer obeys three words: ``setup`` makes its tables, ``produce`` enqueues
when told to, ``work`` runs jobs until SIGTERM. Its task does nothing but note, in a
file that is shared with the command, which job ran and when. So whether all jobs ran,
and each once, is checked in every turn, and by the same code for all.
"""
