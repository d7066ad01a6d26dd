"""A terminal of a size, and the process that has it for its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence

from tests.harness.waiting import patience

HOME = "\x1b[H"
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
READ_SECONDS_MAX = 20.0


class Terminal:
    """Runs a command as from a terminal; reads what it shows, and presses keys."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], columns: int, lines: int
    ) -> None:
        """Start it; *env* is all of its environment but what says the size."""
        self._ours, self._theirs = pty.openpty()
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, size)
        self.settings = termios.tcgetattr(self._theirs)
        self.shown = ""
        own = {
            name: value
            for name, value in env.items()
            if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            list(command),
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={**own, "TERM": "xterm-256color"},
            start_new_session=True,
        )

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._ours, keys.encode())

    def frame(self) -> list[str]:
        """Return the lines of what was drawn last, without colours."""
        drawn = SEQUENCE.sub("", self.shown.rpartition(HOME)[2])
        return [line.rstrip() for line in drawn.replace("\r", "").split("\n")]

    def wait_for(self, is_right: Callable[[list[str]], bool], what: str) -> list[str]:
        """Return the first frame that *is_right*."""
        began = time.monotonic()
        while not is_right(frame := self.frame()):
            seconds = time.monotonic() - began
            assert seconds < READ_SECONDS_MAX * patience(), (what, frame)
            self._read()
        return frame

    def wait_for_end(self) -> int:
        """Return the status of the process, whose last words are read."""
        began = time.monotonic()
        while self.process.poll() is None:
            assert time.monotonic() - began < READ_SECONDS_MAX * patience(), self.shown
            self._read()
        self._read()
        return self.process.returncode

    def settings_now(self) -> list[object]:
        """Return how the terminal is set, to be compared with *settings*."""
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def _read(self) -> None:
        while select.select([self._ours], [], [], 0.05)[0]:
            self.shown += os.read(self._ours, 65_536).decode()
