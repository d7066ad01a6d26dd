"""
Fork server: a process that has imported Django and the worker, and forks workers.

Each of them is a real process, as `python -m django pgqueue_worker` is: the leader of a
session, with arguments, environment, settings, output and exit status of its own. It
reads its settings and declares its tasks itself; what it imports is there already.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import random
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = "tests.worker_settings"

MESSAGE_BYTES_MAX = 128 * 1024

# Set, it has a new Python start each of them.
FRESH = "PGQUEUE_TEST_FRESH"

# Variables that Python, its libraries and the loader read once, when a process starts.
READ_AT_START = ("COVERAGE", "DJANGO_SETTINGS", "LANG", "LC_", "LD_", "PYTHON", "TZ")

# What a worker imports before its first job, and django.setup() does not.
PRELOADED = [
    "asyncio",
    "multiprocessing.popen_fork",
    "django.core.cache",
    "django_pgqueue.management.commands.pgqueue_worker",
]


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that only a new process would heed."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START)
    }


class Forked:
    """A process that the server has forked: what is used of Popen, by its names."""

    def __init__(self, pid: int, status_fd: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status_fd = status_fd

    def poll(self) -> int | None:
        """Return the exit status; None: it runs."""
        if self.returncode is None and select.select([self._status_fd], [], [], 0)[0]:
            text = os.read(self._status_fd, 16)
            os.close(self._status_fd)
            assert text, f"the fork server died before its process {self.pid}"
            self.returncode = int(text)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended."""
        if self.returncode is None:
            select.select([self._status_fd], [], [], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return status


class ForkServer:
    """The server that this process of tests has, until it ends."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            "DATABASE_URL": "postgres:///unused",  # Each worker is told of its own.
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "PGQUEUE_TEST_WORKER": json.dumps({"databases": {}, "pgqueue": {}}),
            "PYTHONPATH": str(REPOSITORY),
        }
        self._at_start = read_at_start(environment)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # As long as itself.
        self._control, its = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.fork_server", str(its.fileno())],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        atexit.register(self._end)

    def can_start(self, environment: Mapping[str, str]) -> bool:
        """Whether a new process would be no different from a forked one."""
        return self._at_start == read_at_start(environment)

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], output: IO[Any]
    ) -> Forked:
        """Fork a process that runs a command of Django and prints to *output*."""
        message = json.dumps([list(arguments), dict(environment)]).encode()
        assert len(message) <= MESSAGE_BYTES_MAX
        status_fd, its = os.pipe()
        try:
            socket.send_fds(self._control, [message], [output.fileno(), its])
            pid = self._control.recv(16)
        except ConnectionError:
            pid = b""
        finally:
            os.close(its)
        if not pid:
            self._errors.seek(0)
            raise RuntimeError(f"no fork server: {self._errors.read().decode()}")
        return Forked(int(pid), status_fd)

    def _end(self) -> None:
        self._control.close()
        self._process.wait(10)


def start(
    arguments: Sequence[str], environment: Mapping[str, str], output: IO[Any]
) -> Forked | subprocess.Popen[bytes]:
    """Start a command of Django in a session of its own, which prints to *output*."""
    if FRESH not in environment and hasattr(os, "pidfd_open"):
        server = fork_server()
        if server.can_start(environment):
            return server.start(arguments, environment, output)
    return subprocess.Popen(
        [sys.executable, "-m", "django", *arguments],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@functools.cache
def fork_server() -> ForkServer:
    """Return the server of this process of tests."""
    return ForkServer()


# In the server ------------------------------------------------------------------------


def main(control_fd: int) -> None:
    """Fork what is asked for; return in each fork, once it is as a new process is."""
    import django

    with declaring_nothing():
        django.setup()
    for name in PRELOADED:
        importlib.import_module(name)
    with socket.socket(fileno=control_fd) as control:
        started = serve(control)
    if started is not None:
        become(*started)


@contextmanager
def declaring_nothing() -> Iterator[None]:
    """Leave to each worker what depends on its settings and environment."""
    from django.apps import AppConfig

    from django_pgqueue.apps import PgQueueConfig
    from tests.crashes.failpoints import FailpointsConfig

    kept = {each: each.ready for each in (PgQueueConfig, FailpointsConfig)}
    for each in kept:
        each.ready = AppConfig.ready  # type: ignore[method-assign]
    yield
    for each, ready in kept.items():
        each.ready = ready  # type: ignore[method-assign]


def serve(control: socket.socket) -> tuple[bytes, int] | None:
    """Return a message and its output in the process that it asked for."""
    children: dict[int, tuple[int, int]] = {}
    readable = select.poll()
    readable.register(control, select.POLLIN)
    while True:
        for fd, _ in readable.poll():
            if fd in children:
                readable.unregister(fd)
                report(fd, *children.pop(fd))
                continue
            message, fds, *_ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 2)
            if not message:
                return None
            output_fd, status_fd = fds
            leads, its = os.pipe()
            pid = os.fork()
            if not pid:
                os.setsid()
                os.close(leads)
                os.close(its)
                for pidfd, (_, other_fd) in children.items():
                    os.close(pidfd)
                    os.close(other_fd)
                os.close(status_fd)
                return message, output_fd
            os.close(output_fd)
            # Not before it leads its group, by which a test may end it at once.
            os.close(its)
            os.read(leads, 1)
            os.close(leads)
            pidfd = os.pidfd_open(pid)
            children[pidfd] = pid, status_fd
            readable.register(pidfd, select.POLLIN)
            control.send(b"%d" % pid)


def report(pidfd: int, pid: int, status_fd: int) -> None:
    """Bury a child, and tell its status to whoever has asked for it."""
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # The test has ended without asking.
        os.write(status_fd, b"%d" % os.waitstatus_to_exitcode(status))
    os.close(status_fd)
    os.close(pidfd)


def become(message: bytes, output_fd: int) -> None:
    """Be what `python -m django …` is, once it has imported what it needs."""
    import django
    from django.apps import apps
    from django.conf import empty, settings
    from django.core.management import execute_from_command_line
    from django.db import connections

    arguments, environment = json.loads(message)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.close(output_fd)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.argv = [str(Path(django.__file__).with_name("__main__.py")), *arguments]
    # Settings are those of its environment.
    for name in (SETTINGS, "tests.settings"):
        del sys.modules[name]
    settings._wrapped = empty
    vars(connections).pop("settings", None)
    connections.__init__()  # type: ignore[misc]
    for label in ("pgqueue", "failpoints"):
        apps.get_app_config(label).ready()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main(int(sys.argv[1]))
