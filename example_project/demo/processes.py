"""
Processes: those that the demonstration starts, and how all of them end.

Each has a log of its own, and a session of its own, so that Ctrl+C reaches nobody but
the demonstration, which then stops them in the opposite order of their start. Should
the demonstration itself be killed, lifeline.py ends them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType

from example_project.demo.project import CHECKOUT, PROJECT

STOP_SECONDS_MAX = 15.0
TAIL_LINES = 15


class ProcessDied(Exception):
    """One of the processes ended on its own."""


class Processes:
    """Starts processes; at the end of the with block all of them have stopped."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._ending: set[str] = set()
        self._lifeline = subprocess.Popen(
            [sys.executable, "-m", "example_project.demo.lifeline"],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        listen: socket.socket | None = None,
        ends: bool = False,
        niceness: int = 0,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """
        Start a Python process and return its pid.

        Args:
            name: Of the log, and in messages.
            command: Arguments of Python.
            listen: A listening socket to hand over; the command gets `--fd N`.
            ends: Whether it is one that ends by itself.
            niceness: How far it stands back behind others: 0 to 19.
            environment: Variables beside the inherited ones.
        """
        handed = [listen.fileno()] if listen else []
        with (self._logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    *command,
                    *(["--fd", str(handed[0])] if handed else []),
                ],
                cwd=CHECKOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=handed,
                start_new_session=True,
            )
        if niceness:
            # At its end, if it is so quick.
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        self._started[name] = process
        if ends:
            self._ending.add(name)
        self._tell_lifeline(f"+{process.pid}")
        if listen:
            listen.close()  # Once the child dies, a client is refused, not ignored.
        return process.pid

    def manage(
        self, name: str, *arguments: str, ends: bool = False, **environment: str
    ) -> int:
        """Start `manage.py …` and return its pid."""
        manage_py = str((PROJECT / "manage.py").relative_to(CHECKOUT))
        return self.start(
            name, [manage_py, *arguments], ends=ends, environment=environment
        )

    def ended(self, name: str) -> int | None:
        """Return the status of a process that has ended; None: it runs."""
        return self._started[name].poll()

    def said(self, name: str) -> str:
        """Return its log."""
        return (self._logs / f"{name}.log").read_text(errors="replace")

    def check(self) -> None:
        """
        Do nothing as long as all of them run that are to stay.

        Raises:
            ProcessDied: It names the one that ended.
        """
        for name, process in self._started.items():
            if name not in self._ending and process.poll() is not None:
                raise ProcessDied(
                    f"The {name} process ended with status {process.returncode}."
                )

    def tails(self) -> str:
        """Return the last lines of every log."""
        parts = []
        for name in self._started:
            lines = self.said(name).splitlines()[-TAIL_LINES:]
            parts.append("\n".join([f"--- {self._logs / f'{name}.log'}", *lines]))
        return "\n".join(parts)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for process in reversed(self._started.values()):
                self._stop(process)
        finally:  # A second Ctrl+C: at once.
            for process in self._started.values():
                _kill_group(process.pid)
                process.wait()
                self._tell_lifeline(f"-{process.pid}")
            assert self._lifeline.stdin is not None
            self._lifeline.stdin.close()
            self._lifeline.wait()

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return  # It is killed at the end, with whatever it has started.

    def _tell_lifeline(self, line: str) -> None:
        assert self._lifeline.stdin is not None
        # Should somebody kill it, the demonstration goes on without.
        with contextlib.suppress(BrokenPipeError):
            self._lifeline.stdin.write(f"{line}\n".encode())
            self._lifeline.stdin.flush()


def _kill_group(pid: int) -> None:
    # macOS says EPERM of a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def listening_socket() -> socket.socket:
    """Return a socket that listens on a free port of 127.0.0.1, and so keeps it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener
