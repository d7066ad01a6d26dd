"""
A driver of the cluster, in a process that knows no Django.

    python -m tests.spark.cluster.driver FOLDER

Each line of its input is a call, as JSON: [function, arguments]. Each is answered by a
line, ["done", what it returns] or ["failed", the traceback].
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from django_pgqueue.spark.session import open_session

ANSWER = "answer "

# So that half of a task's rows are more than one COPY of a stage.
PADDING = 2_000


def session() -> Any:
    """Return the session of the driver."""
    return open_session("cluster")


def read(table: str, options: dict[str, str]) -> list[int]:
    """Return how many rows there are, how many ids, and their sum."""
    frame = session().read.format("pgqueue").options(table=table, **options).load()
    frame.createOrReplaceTempView("read")
    told = session().sql("SELECT count(*), count(DISTINCT id), sum(id) FROM read")
    return list(told.first())


def executors() -> list[int]:
    """Return how many tasks each live executor has run, the driver left out."""
    store = session()._jsparkSession.sparkContext().statusStore()
    found = store.executorList(True)
    known = [found.apply(place) for place in range(found.size())]
    return [each.totalTasks() for each in known if each.id() != "driver"]


def write(rows: int, folder: str, options: dict[str, str]) -> None:
    """
    Write *rows* jobs by two tasks.

    Each says in *folder* that it is halfway, by a file "TASK-ATTEMPT" with its process.
    A first attempt goes on once there is a file "go".
    """

    def make(task: int, _: Iterator[int]) -> Iterator[tuple[int, str]]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        for row in range(rows // 2):
            if row == rows // 4:
                said = Path(folder, f"{task}-{attempt}")
                said.with_suffix(".new").write_text(str(os.getpid()))
                said.with_suffix(".new").rename(said)
                while attempt == 0 and not Path(folder, "go").exists():
                    time.sleep(0.02)
            yield task * rows + row, "x" * PADDING

    spark = session()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1_000)
    made = spark.sparkContext.parallelize(range(2), 2).mapPartitionsWithIndex(make)
    frame = spark.createDataFrame(made, "id bigint, text string")
    frame.write.format("pgqueue").mode("append").options(**options).save()


def write_few(options: dict[str, str]) -> None:
    """Write four jobs by two tasks."""
    frame = session().range(0, 4, 1, 2)
    frame.write.format("pgqueue").mode("append").options(**options).save()


def close() -> None:
    """End the application, so that its log is complete."""
    session().stop()


CALLS = {f.__name__: f for f in (read, executors, write, write_few, close)}


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = ["done", CALLS[name](*arguments)]
        except Exception:
            answer = ["failed", traceback.format_exc()]
        sys.stdout.write(f"\n{ANSWER}{json.dumps(answer)}\n")
        sys.stdout.flush()
    session().stop()


if __name__ == "__main__":
    main()
