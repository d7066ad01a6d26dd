"""
How many jobs a process repeats when it is killed, measured for each settle strength.

A worker process runs jobs that only record their own start and end in a file. It is
killed at random moments while a backlog is waiting, and the jobs that start again are
counted.

    python -m tests.faults --windows                        all cases, 200 kills each
    python -m tests.faults --windows --kills 10 --seed 7    fewer kills
    python -m tests.faults --windows --case "batched 16"    one strength, 16 threads
"""
