"""
A Spark driver of its own, which a test may kill: write 20,000 rows.

    python -m tests.spark.write.driver DSN_FILE FOLDER JAVA_OPTIONS WHAT

WHAT is an option of the writer that says what they become, such as task=a.b.

Each of its two tasks says in FOLDER that it is half through, and its first attempt goes
on once there is a file "go". A task is tried three times.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROWS = 20_000
# So that half of a task's rows are more than one COPY of a stage.
PADDING = 2_000


def main(dsn_file: str, folder: str, java_options: str, what: str) -> None:
    """Write, and say so."""
    from pyspark import TaskContext

    from django_pgqueue.spark.session import open_session

    spark = open_session(
        "driver",
        master="local[2,3]",
        config={
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": java_options,
        },
    )

    def rows(task: int, _: Iterator[int]) -> Iterator[tuple[int, str]]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        for row in range(ROWS // 2):
            if row == ROWS // 4:
                said = Path(folder, f"{task}-{attempt}")
                said.with_suffix(".new").write_text(str(os.getpid()))
                said.with_suffix(".new").rename(said)
                while attempt == 0 and not Path(folder, "go").exists():
                    time.sleep(0.02)
            yield task * ROWS + row, "x" * PADDING

    two = spark.sparkContext.parallelize(range(2), 2)
    frame = spark.createDataFrame(
        two.mapPartitionsWithIndex(rows), "id bigint, text string"
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1_000)
    writer = frame.write.format("pgqueue").mode("append")
    option, _, value = what.partition("=")
    writer.options(dsnFile=dsn_file, name="driver", **{option: value}).save()
    Path(folder, "done").write_text("")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
