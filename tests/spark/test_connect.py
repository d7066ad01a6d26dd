"""Spark Connect: a session whose driver is a server, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from django_pgqueue.exceptions import SparkError
from django_pgqueue.models import Job, TaskHour
from django_pgqueue.spark.session import OF_CONNECT, open_session
from tests.harness.factories import make_archived_job, make_jobs
from tests.harness.waiting import wait_for
from tests.spark.conftest import ROOT, require, without_django

pytestmark = pytest.mark.spark

LOOPBACK = "127.0.0.1"

# Of this process's environment, what a Java and a Python need to start.
KEPT = ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR")

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

CLIENT = """
import json, os, sys
from django_pgqueue.redaction.names import REDACT_DEFAULT
from django_pgqueue import spark
from django_pgqueue.spark import submit
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.session import open_session

def read(session):
    rows = spark.read(session, "jobs", columns=["id", "kwargs"])
    return [row.kwargs for row in rows.sort("id").collect()]

session = open_session("client")
told = {"read": read(session)}
frame = session.range(0, 10, 1, 2)
frame.write.format("pgqueue").mode("append").option("task", "a.b").save()
session = open_session("client", redaction=Redaction(("order",)))
told["hidden"] = read(session)[0]
told["metrics"] = submit.main(["metrics"])
told["export"] = submit.main(["export", "-o", f"path={os.getcwd()}/lake"])
print("told", json.dumps(told))
"""


@pytest.fixture
def connect_packages():
    """Skip, or fail where all must be there."""
    require(*{name.partition(".")[0] for name in OF_CONNECT})


@pytest.mark.parametrize(
    "address, problem",
    [
        ("sc://127.0.0.1:1", "at sc://127.0.0.1:1: .*refused"),
        ("sc://127.0.0.1:1/;token=s3cret", "at sc://127.0.0.1:1: .*refused"),
        ("sc://127.0.0.1:http", "at sc://127.0.0.1:http: Port could not be cast"),
    ],
)
def test_a_server_that_is_not_there_is_told_at_once(connect_packages, address, problem):
    """Spark's own client tries for minutes; and an address may hold a token."""
    with pytest.raises(SparkError, match=problem) as told:
        open_session("nobody", master=address)

    assert "s3cret" not in str(told.value)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_works_through_spark_connect(
    connect_packages, transactional_db, dsn, tmp_path
):
    """Reads, writes and redaction do; metrics and export ask for no session."""
    make_jobs(1, kwargs={"order": 7, "note": "x"})
    for _ in range(3):
        make_archived_job()
    environ = process_environment(tmp_path, dsn)
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [
                *(spark_home() / "bin" / "spark-submit", "--master", "local[2]"),
                *("--conf", f"spark.connect.grpc.binding.address={LOOPBACK}"),
                *("--conf", "spark.connect.grpc.binding.port=0"),
                *("--conf", "spark.ui.enabled=false"),
                *("--conf", f"spark.sql.warehouse.dir={tmp_path / 'warehouse'}"),
                *("--driver-java-options", "-XX:TieredStopAtLevel=1"),
                *("--class", SERVER, "spark-internal"),
            ],
            cwd=tmp_path,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        port = wait_for(lambda: listens_at(log), 60, "the server listens")
        client = subprocess.run(
            [sys.executable, "-c", CLIENT],
            cwd=tmp_path,
            env={**environ, "SPARK_MASTER": f"sc://{LOOPBACK}:{port}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
    finally:
        server.kill()
        server.wait()

    assert 0 == client.returncode, client.stderr
    told = json.loads(client.stdout.rpartition("told ")[2])
    assert [{"order": 7, "note": "x"}] == [json.loads(each) for each in told["read"]]
    assert 11 == Job.objects.count()
    assert {"order": "[redacted]", "note": "x"} == json.loads(told["hidden"])
    assert 0 == told["metrics"]
    assert [3] == list(TaskHour.objects.values_list("succeeded", flat=True))
    assert 0 == told["export"]


def process_environment(folder: Path, dsn: str) -> dict[str, str]:
    """Return one without a word of Django, for server and client."""
    first = without_django(folder / "without_django")
    path = [first, ROOT, ROOT / "django_pgqueue/spark/toplevel"]
    return {
        **{key: os.environ[key] for key in KEPT if key in os.environ},
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONWARNINGS": "ignore",  # Of Spark, about the newest pandas.
        "PGQUEUE_DSN": dsn,
        "SPARK_LOCAL_IP": LOOPBACK,
    }


def spark_home() -> Path:
    """Return where pyspark is, which has all programs of Spark."""
    import pyspark

    return Path(pyspark.__file__).parent


def listens_at(log: Path) -> str | None:
    """Return the port that the server says."""
    mark = f"Spark Connect server started at: {LOOPBACK}:"
    _, found, rest = log.read_text(errors="replace").partition(mark)
    return rest.split()[0] if found else None
