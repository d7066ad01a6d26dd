"""spark.readStream over the log, with checkpoints, on a real Spark."""

from __future__ import annotations

import json
from itertools import chain

import pytest

pytestmark = pytest.mark.spark


class Sink:
    """What foreachBatch has seen: the ids of each batch, by its number."""

    def __init__(self):
        self.batches = {}
        self.fails_after = None

    def __call__(self, frame, number):
        self.batches[number] = sorted(row.id for row in frame.select("id").collect())
        if number == self.fails_after:
            raise RuntimeError("after the sink, before Spark's commit")

    @property
    def ids(self):
        return sorted(chain.from_iterable(self.batches.values()))


@pytest.fixture
def run(spark, tmp_path):
    """``run(sink, "orders", maxRowsPerBatch="7")`` reads all that there is now."""

    def run(sink, topic="orders", **given):
        query = (
            spark.readStream.format("pgqueue")
            .option("table", "log")
            .option("topic", topic)
            .options(**given)
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return run


@pytest.mark.slow
def test_a_query_reads_each_message_once_from_its_checkpoint(run, publish, new_cursor):
    """Admission bounds its batches, it ends with what there was, goes on after a crash
    between sink and commit with the same batch, and reads later what was held back."""
    from pyspark.errors import StreamingQueryException

    first = publish(10)
    sink = Sink()
    open_ = new_cursor()
    with open_.connection.transaction():
        held = publish(2, on=open_)
        query = run(sink, starting="earliest", maxRowsPerBatch="6")
        assert {0: 6, 1: 4} == {n: len(ids) for n, ids in sink.batches.items()}
        assert first == sink.ids
    said = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert {"installation", "topics", "version"} == set(said)

    later = publish(3)
    sink.fails_after = 2
    with pytest.raises(StreamingQueryException, match="before Spark's commit"):
        run(sink)
    failed, sink.fails_after = sink.batches[2], None
    publish(2)
    run(sink)

    assert held + later == failed == sink.batches[2]
    assert 17 == len(sink.ids) == len(set(sink.ids))
    run(sink)
    assert [0, 1, 2, 3] == sorted(sink.batches)
