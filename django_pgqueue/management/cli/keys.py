"""Keys: what is pressed while a screen is shown, without Enter."""

from __future__ import annotations

import os
import select
import time
from types import TracebackType
from typing import Any, TextIO


class Keys:
    """
    Reads keys of a terminal while it is entered; Ctrl-C interrupts as ever.

    Attributes:
        are_heard: Whether there is such a terminal.
    """

    def __init__(self, stdin: TextIO) -> None:
        self._stdin = stdin
        self._before: list[Any] = []
        self.are_heard = False

    def __enter__(self) -> Keys:
        """Let the terminal hand over each key at once, and not show it."""
        # Of Unix, as terminals are.
        import termios
        import tty

        try:
            self.are_heard = self._stdin.isatty()
        except ValueError:  # It is closed.
            return self
        if self.are_heard:
            self._before = termios.tcgetattr(self._stdin)
            tty.setcbreak(self._stdin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        import termios

        if self.are_heard:
            termios.tcsetattr(self._stdin, termios.TCSADRAIN, self._before)

    def wait_for(self, key: str, seconds: float) -> bool:
        """Return whether *key* is pressed, or the terminal closed, within *seconds*."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            heard = [self._stdin.fileno()] if self.are_heard else []
            if select.select(heard, [], [], left)[0]:
                pressed = os.read(heard[0], 64)
                if not pressed or key.encode() in pressed.lower():
                    return True
        return False
