"""
Lifeline: ends the processes of a demonstration that was killed with SIGKILL.

It is told of each process group on standard input: "+4711" started, "-4711" ended. The
input ends when the demonstration does, in whatever way.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    running: list[int] = []
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            running.append(group)
        else:
            running.remove(group)
    for group in reversed(running):
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue  # It has ended by itself.


if __name__ == "__main__":
    main()
