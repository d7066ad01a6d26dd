"""
JVM: what PySpark has no public name for, in the driver's own Java process.

All such calls belong here. Spark Connect has no such process.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django_pgqueue.extras import extra


def is_running() -> bool:
    """Whether this process has one; it outlives its sessions, with its environment."""
    return extra("pyspark").SparkContext._gateway is not None


def environment(session: Any, name: str) -> str:
    """Return a variable that it was started with, as Spark's Pythons find it; or ""."""
    with suppress(Exception):
        return str(session.sparkContext._jvm.System.getenv(name) or "")
    return ""


def zone(session: Any) -> str:
    """Return the name of its time zone, in which it writes moments as text."""
    return str(session.sparkContext._jvm.java.util.TimeZone.getDefault().getID())


def activate(session: Any) -> None:
    """
    Let this thread write by format("pgqueue").

    save() looks for its session in the thread, which need not be the one that has
    opened it.
    """
    with suppress(Exception):
        java = session._jvm.org.apache.spark.sql.classic.SparkSession
        java.setActiveSession(session._jsparkSession)
