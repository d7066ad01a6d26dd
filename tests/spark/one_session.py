"""The one Spark session of a process of tests, and a new one after it has broken."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.harness.waiting import patience


class OneSession:
    """
    The session that all tests of a process share, since a JVM takes seconds to start.

    A test that is cut off within a call leaves its answer to the next call, and so on:
    every later test would fail. So it costs the session, and so does a JVM that died.
    """

    def __init__(self) -> None:
        self._session: Any = None
        self._is_broken = False

    def get(self, start: Callable[[], Any]) -> Any:
        """Return the session, which *start* opens where there is none that works."""
        if self._needs_renewal():
            self._discard()
        if self._session is None:
            self._session = start()
            self._session.sparkContext.setLogLevel("OFF")
        return self._session

    def cut_off(self) -> None:
        """Say that a test was cut off, perhaps within a call or while it started."""
        self._is_broken = True

    def close(self) -> None:
        """Stop it, and wait until its JVM has ended."""
        gateway = _gateway()
        if self._session is not None and not self._needs_renewal():
            self._session.stop()
            self._session = None
            gateway.shutdown()
            gateway.proc.stdin.close()
            # The first one writes the archive of classes that later ones start with.
            gateway.proc.wait(60 * patience())
        elif gateway is not None:
            self._discard()

    def _needs_renewal(self) -> bool:
        if self._session is None and not self._is_broken:
            return False
        gateway = _gateway()
        return self._is_broken or gateway is None or gateway.proc.poll() is not None

    def _discard(self) -> None:
        """Kill the JVM, and have pyspark forget it."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession, SQLContext

        gateway, context = _gateway(), SparkContext._active_spark_context
        if gateway is not None:
            gateway.proc.kill()
            gateway.proc.wait(60 * patience())
            gateway.proc.stdin.close()
            with warnings.catch_warnings(), suppress(Exception):
                warnings.simplefilter("ignore")
                context.stop()
            with suppress(Exception):
                gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SQLContext._instantiatedContext = None
        self._session = None
        self._is_broken = False


def _gateway() -> Any:
    """Return how pyspark reaches its JVM; None where it has none, or is not there."""
    pyspark = sys.modules.get("pyspark")
    return None if pyspark is None else pyspark.SparkContext._gateway


ONE = OneSession()
