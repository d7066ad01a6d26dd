"""
Windows: how many jobs a process repeats that is killed, measured.

A worker process runs jobs that do nothing but note themselves in a file. It is killed
at random moments, each time in the middle of a backlog, and whatever of its work is
run again is counted. The settle strength decides how much that is.

    python -m tests.faults --windows                        all of it, 200 kills each
    python -m tests.faults --windows --kills 10 --seed 7    fewer
    python -m tests.faults --windows --case "batched 16"    one strength, 16 threads

book.py is the file, tasks.py what writes it, measure.py the measure, command.py all of
them, broken.py what it must find out.
"""
