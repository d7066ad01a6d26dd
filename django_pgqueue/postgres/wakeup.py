"""Wakeup: what a thread waits for that waits for other threads and for the server."""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading

# Bytes of the pipe that are read at once; few are ever in it.
PIPE_BYTES = 64


class Wakeup:
    """
    As threading.Event, but it waits for a socket too, and signal handlers may set it.

    Any thread may set it, and one waits, for other threads and for the server at once:
    a second thread would cost each wake the time that a sleeping thread takes to get
    up. A handler runs in the main thread, between any two steps of it, and would wait
    for ever for an Event's lock that this thread holds.

    Only to set it while that thread sleeps costs a system call. The pipe is made by the
    first wait, and closed with close().
    """

    def __init__(self) -> None:
        self._is_set = False
        self._sleeps = False
        self._pipe: tuple[int, int] | None = None
        # Keeps set() from writing into a pipe that is being closed. A handler may call
        # it while its own thread holds the lock.
        self._lock = threading.RLock()

    def set(self) -> None:
        """End the wait that is under way, or else the next one, at once."""
        self._is_set = True
        # Asked after that was said; wait() does it the other way round.
        if self._sleeps:
            with self._lock:
                if self._pipe is not None:
                    # Full: of wakeups that nobody has read yet.
                    with contextlib.suppress(BlockingIOError):
                        os.write(self._pipe[1], b"!")

    def clear(self) -> None:
        """Let the next wait last."""
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it was set since it was last cleared."""
        return self._is_set

    def wait(self, seconds: float, socket: int | None = None) -> bool:
        """
        Wait for set(), for *socket* to have something to read, or for *seconds*.

        Returns:
            Whether *socket* has something to read, or an error to tell.
        """
        reader = self._reader()
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        if socket is not None:
            poll.register(socket, select.POLLIN)
        self._sleeps = True
        try:
            # Rounded up: a wait that ends too early is followed by another one.
            pause = 0 if self._is_set else math.ceil(max(seconds, 0) * 1_000)
            found = [descriptor for descriptor, _ in poll.poll(pause)]
        finally:
            self._sleeps = False
        if reader in found:
            os.read(reader, PIPE_BYTES)
        return socket in found

    def close(self) -> None:
        """Close the pipe; it is made again if somebody waits after all."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
        for descriptor in pipe or ():
            os.close(descriptor)

    def _reader(self) -> int:
        if self._pipe is None:
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            os.set_blocking(writer, False)
            self._pipe = reader, writer
        return self._pipe[0]
