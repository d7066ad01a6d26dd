"""A Spark session for all tests of a process, on the test database."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.management.spark_session import dsn_of
from django_pgqueue.spark.dsn import DsnSource
from django_pgqueue.spark.java import activate, installed
from django_pgqueue.spark.jdbc.driver import DEBIANS
from tests.harness.proxy import Proxy
from tests.spark.one_session import ONE

ROOT = Path(__file__).resolve().parent.parent.parent

# Part of the DSN. The server asks for no password, so any will do.
PASSWORD = "pl4nted-p4ssword"

# What Spark's own Pythons find instead of Django.
NO_DJANGO = "raise ImportError('A process of Spark has imported Django.')\n"

# And pyspark as it is installed: in Spark's archive it would be compiled by each.
AS_INSTALLED = """
import sys
sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
"""


def without_django(folder: Path) -> Path:
    """Fill *folder*, the first of what Spark's own Pythons search; return it."""
    (folder / "django").mkdir(parents=True)
    (folder / "django" / "__init__.py").write_text(NO_DJANGO)
    (folder / "sitecustomize.py").write_text(AS_INSTALLED)
    return folder


def require(*modules: str) -> None:
    """Skip the test, or fail it where everything is to run, without *modules*."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    message = f"{', '.join(missing)} not installed: the extra [spark] is not tested"
    if os.environ.get("PGQUEUE_REQUIRE_ALL") == "1":
        pytest.fail(f"{message} (PGQUEUE_REQUIRE_ALL=1)")
    pytest.skip(message)


@pytest.fixture(autouse=True)
def _packages(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("spark"):
        require("pyspark", "pyarrow", "adbc_driver_postgresql")


@pytest.fixture(scope="session")
def dsn(django_db_setup: None) -> str:
    """The DSN of the test database, with a password."""
    return make_conninfo(dsn_of("default"), password=PASSWORD)


@pytest.fixture(scope="session")
def start_spark(
    dsn: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Any]]:
    """A function that starts a session on the test database, in a JVM of its own."""
    first = without_django(tmp_path_factory.mktemp("without_django"))
    path = [first, ROOT, ROOT / "django_pgqueue" / "spark" / "toplevel"]
    cache = request.config.cache.mkdir("spark")

    def start() -> Any:
        from pyspark import __version__

        from django_pgqueue.spark.session import open_session

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(map(str, path)))
            patch.setenv("PGQUEUE_ELSEWHERE", dsn)
            return open_session(
                "tests",
                master="local[2]",
                dsn=dsn,
                config={
                    "spark.ui.port": "0",
                    "spark.sql.shuffle.partitions": "2",
                    "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark")),
                    "spark.driver.extraJavaOptions": quick_start(cache, __version__),
                },
            )

    yield start
    ONE.close()


@pytest.fixture
def spark(start_spark: Callable[[], Any]) -> Any:
    """The one session of the process."""
    require("pyspark", "pyarrow", "adbc_driver_postgresql")
    session = ONE.get(start_spark)
    # A run may have started it, in a thread of its own.
    activate(session)
    return session


def quick_start(cache: Path, version: str) -> str:
    """Options with which a JVM starts in half the time; it runs slower afterwards."""
    options = ["-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Xlog:all=off"]
    # With one compiler it is 48 MB, which all tests in one JVM fill.
    options.append("-XX:ReservedCodeCacheSize=240m")
    found, _ = installed(os.environ)
    if found is not None:  # The wheel's Java has no archive to add to.
        archive = cache / f"classes-{version}-java{found.version}.jsa"
        if archive.exists():
            options.append(f"-XX:SharedArchiveFile={archive}")
        elif os.environ.get("PGQUEUE_REQUIRE_ALL") != "1":
            # It takes the end of a run fifteen seconds; CI throws its clone away.
            options.append(f"-XX:ArchiveClassesAtExit={archive}")
    return " ".join(options)


@pytest.fixture
def read(spark: Any, transactional_db: None) -> Callable[..., Any]:
    """``read("archive", columns="id")`` is a DataFrame; options by their names."""

    def read(table: str = "jobs", **options: Any) -> Any:
        reader = spark.read.format("pgqueue").option("table", table)
        return reader.options(**options).load()

    return read


@pytest.fixture
def by_jdbc(
    spark: Any, dsn: str, transactional_db: None, tmp_path: Path
) -> Iterator[DsnSource]:
    """Where the test database is over TCP, as JDBC knows no Unix sockets."""
    if not DEBIANS.exists():
        message = f"There is no {DEBIANS}: reading by JDBC is not tested"
        if os.environ.get("PGQUEUE_REQUIRE_ALL") == "1":
            pytest.fail(f"{message} (PGQUEUE_REQUIRE_ALL=1)")
        pytest.skip(message)
    file = tmp_path / "dsn"
    with Proxy() as proxy:
        told = {"host": "127.0.0.1", "port": proxy.port, "sslmode": "disable"}
        file.write_text(make_conninfo(dsn, **told, gssencmode="disable"))
        yield DsnSource(file=str(file))
