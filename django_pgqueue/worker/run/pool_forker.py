"""
Pool forker: the process that forks runners for a worker process, and reaps them.

A worker process has threads, and a fork of a process with threads may inherit a held
lock. So it forks this one before it starts any: no threads, no connections, every task
loaded. A runner begins with what this has in memory, and shares it.

It does nothing by itself. The worker process asks for a runner and hands over its end
of a socket; or asks for the end of one. The kernel ends all of them with the worker
process, or, where it does not, the end of the socket does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import logging
import multiprocessing
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import Any, NoReturn

from django_pgqueue.worker.run.isolation import new_thread
from django_pgqueue.worker.run.pool_messages import Channel
from django_pgqueue.worker.run.pool_runner import (
    NUDGE,
    RunnerOptions,
    ignore,
    run_runner,
)

logger = logging.getLogger("django_pgqueue.worker")

# Kind, number of the runner, and its place, process id or status.
FRAME = struct.Struct("=cqq")
START, KILL = b"s", b"k"  # From the worker process.
STARTED, DIED = b"S", b"D"  # To it.

# The status of a runner that could not even be forked.
NO_STATUS = 256

SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})

PR_SET_PDEATHSIG = 1


class Runner:
    """A runner, as the worker process knows it."""

    def __init__(self, number: int, end: socket.socket) -> None:
        self.number = number
        self.channel = Channel(end)
        self.pid: int | None = None
        self.status: int | None = None  # As Process.exitcode; None: unknown.
        self.has_died = threading.Event()

    @property
    def cause(self) -> str:
        """How it ended, for people."""
        if self.status is None:
            return "the process that had forked it"
        if self.status < 0:
            return f"signal {-self.status}"
        return f"exit status {self.status}"


class Forker:
    """The forker, as the worker process knows it."""

    def __init__(self, context: BaseContext, options: RunnerOptions) -> None:
        """Start the process; call it before there are threads."""
        ours, theirs = socket.socketpair()
        self.options = options
        self._socket = ours
        self._lock = threading.Lock()
        self._runners: dict[int, Runner] = {}
        self._number = 0
        self._is_stopping = False
        self._on_death: Callable[[], None] = lambda: None
        make: Any = context
        self._process = make.Process(
            target=_run,
            args=(ours, theirs, options, os.getpid()),
            name="pgqueue-forker",
        )
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal between the fork and its own handlers would meet ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        theirs.close()

    def start(self, on_death: Callable[[], None]) -> None:
        """Listen to it; *on_death* is called when it is gone, and was not stopped."""
        self._on_death = on_death
        new_thread(self._listen, name="pgqueue-pool").start()

    def fork(self, place: int) -> Runner:
        """Ask for a runner in *place*; returns at once."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            self._number += 1
            runner = self._runners[self._number] = Runner(self._number, ours)
            try:
                frame = FRAME.pack(START, runner.number, place)
                socket.send_fds(self._socket, [frame], [theirs.fileno()])
            except OSError:
                self._end(runner, None)
        return runner

    def kill(self, runner: Runner) -> None:
        """
        End a runner with SIGKILL; returns at once.

        The forker sends it: only a parent knows that the id is still its child's.
        """
        runner.channel.hang_up()
        # It is gone with the forker, then.
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(FRAME.pack(KILL, runner.number, 0))

    def stop(self, seconds: float) -> None:
        """End it, and every runner with it."""
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._process.join(seconds)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    def _listen(self) -> None:
        try:
            while True:
                kind, number, value = FRAME.unpack(_exactly(self._socket, FRAME.size))
                runner = self._runners[number]
                if kind == STARTED:
                    runner.pid = value
                else:
                    with self._lock:
                        self._end(runner, value)
        except (OSError, EOFError):
            pass
        except Exception:
            logger.exception("failed     loop=pool")
        with self._lock:
            for runner in list(self._runners.values()):
                self._end(runner, None)
        if not self._is_stopping:
            logger.error("died       forker pid=%s of the pool", self._process.pid)
            self._on_death()

    def _end(self, runner: Runner, status: int | None) -> None:
        self._runners.pop(runner.number, None)
        runner.status = status
        runner.has_died.set()
        # A process that the runner has left behind may hold its end of the socket.
        runner.channel.hang_up()


def _exactly(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = end.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


# The process --------------------------------------------------------------------------


def _run(
    far: socket.socket, near: socket.socket, options: RunnerOptions, parent: int
) -> None:
    far.close()
    _die_with(parent)
    for number in SIGNALS:
        signal.signal(number, ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # What is here now stays: no collection should touch, and so copy, shared pages.
    gc.collect()
    gc.freeze()
    _Forker(near, options).run()
    os._exit(0)


class _Forker:
    def __init__(self, control: socket.socket, options: RunnerOptions) -> None:
        self._control = control
        self._options = options
        self._numbers: dict[int, int] = {}  # By process id.
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, ignore)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while True:
                ready = {descriptor for descriptor, _ in poll.poll()}
                if self._woken.fileno() in ready:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(4096)
                    self._reap()
                if self._control.fileno() in ready and not self._follow():
                    return
        except OSError:
            return  # The worker process is gone.
        finally:
            for pid in self._numbers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in self._numbers:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _follow(self) -> bool:
        """Do what the worker process asks for; False: it is gone, or wants the end."""
        data, descriptors, _, _ = socket.recv_fds(self._control, FRAME.size, 1)
        if not data:
            return False
        data += _exactly(self._control, FRAME.size - len(data))
        kind, number, value = FRAME.unpack(data)
        if kind == START:
            self._fork(number, value, descriptors[0])
        else:
            for pid in [p for p, n in self._numbers.items() if n == number]:
                os.kill(pid, signal.SIGKILL)
        return True

    def _fork(self, number: int, place: int, descriptor: int) -> None:
        with socket.socket(fileno=descriptor) as end:
            parent = os.getpid()
            # A signal before it has gone its own way would wake us instead.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            try:
                pid = os.fork()
                if not pid:
                    self._become_runner(place, end, parent)
            except OSError as error:
                logger.error("failed     loop=forker error=%s", error)
                self._tell(DIED, number, NO_STATUS)
                time.sleep(0.1 if error.errno == errno.EAGAIN else 0)
                return
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        self._numbers[pid] = number
        self._tell(STARTED, number, pid)

    def _become_runner(self, place: int, end: socket.socket, parent: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            signal.signal(NUDGE, ignore)
            for inherited in (self._control, self._woken, self._wake):
                inherited.close()
            _die_with(parent)
            name = f"pgqueue-runner-{place}"
            multiprocessing.current_process().name = name
            run_runner(self._options, Channel(end), place)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        for pid in list(self._numbers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                number = self._numbers.pop(pid)
                self._tell(DIED, number, os.waitstatus_to_exitcode(status))

    def _tell(self, kind: bytes, number: int, value: int) -> None:
        self._control.sendall(FRAME.pack(kind, number, value))


def _die_with(parent: int) -> None:
    """Let the kernel end this process when its parent ends, where it can."""
    # Not everywhere: else the end of the socket must do.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
