"""Batches of a stream become jobs, once for each checkpoint."""

from __future__ import annotations

import shutil

import pytest

from django_pgqueue.models import Job
from django_pgqueue.spark.write.stream import write_batches

pytestmark = pytest.mark.spark


def test_a_new_checkpoint_writes_its_batches(spark, transactional_db, tmp_path):
    """Its numbers begin at 0 again, as did those of the old one, whose batch is not
    written again after a crash between our commit and Spark's."""
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.json").write_text('{"id": 1}\n{"id": 2}\n{"id": 3}\n')
    checkpoint = tmp_path / "checkpoint"
    write = write_batches("mails", task="shop.send")
    rows = spark.readStream.schema("id bigint").json(str(tmp_path / "rows"))

    def run():
        query = (
            rows.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert 3 == Job.objects.count()
    # As a crash leaves it: Spark runs the batch again.
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    run()
    assert 3 == Job.objects.count()

    shutil.rmtree(checkpoint)
    run()
    assert 6 == Job.objects.count()
