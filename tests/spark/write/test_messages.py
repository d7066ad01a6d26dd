"""Rows of a DataFrame become messages, as publish() publishes them: all or none."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tests.spark.write.conftest import journal, stages

pytestmark = pytest.mark.spark

ROUTES = """
INSERT INTO pgqueue_subscription (source, pattern, topic, task, queue, since_epoch)
VALUES ('user', 'orders.paid', 'orders', 'shop.thank', 'mail', 0),
       ('user', 'orders', 'orders', 'shop.count', 'stats', 0)
"""


@pytest.fixture
def topic(database):
    """Two subscriptions to a topic that nobody has published to."""
    database.execute(ROUTES)
    yield "orders"
    database.execute("TRUNCATE pgqueue_subscription, pgqueue_job CASCADE")
    database.execute("TRUNCATE pgqueue_message, pgqueue_topic")


def messages(database, columns):
    return database.execute(
        f"SELECT {columns} FROM pgqueue_message ORDER BY id"
    ).fetchall()


def test_rows_become_messages_and_the_jobs_of_whoever_subscribes(
    spark, write, database, topic
):
    """In the order of the column id, of any type of payload; each once by its name."""
    frame = spark.range(2_000).selectExpr(
        "id",
        "named_struct('n', id) AS payload",
        "concat('c', id % 5) AS key",
        "IF(id % 2 = 0, 'orders.paid', 'orders.made') AS name",
        "named_struct('from', 'lake') AS headers",
    )

    write(frame.orderBy("payload.n", ascending=False), topic=topic, name="once")

    found = messages(database, "name, key, payload, headers")
    assert list(range(2_000)) == [payload["n"] for _, _, payload, _ in found]
    assert ("orders.paid", "c0", {"n": 0}, {"from": "lake"}) == found[0]
    assert [("count", "stats", 2_000), ("thank", "mail", 1_000)] == database.execute(
        "SELECT split_part(task, '.', 2), queue, count(*) FROM pgqueue_job"
        " GROUP BY 1, 2 ORDER BY 1"
    ).fetchall()
    assert [("committed", 2_000, 0, 0)] == journal(
        database, "state, written, skipped, refused"
    )
    with pytest.raises(PySparkException, match="was committed already"):
        write(frame, topic=topic, name="once")
    assert [] == stages(database)


def test_bad_messages_are_refused_as_publish_refuses_them(
    spark, write, database, topic, tmp_path
):
    """Names, keys, JSON, headers and sizes; the rest is published."""
    frame = spark.sql(
        """
        SELECT * FROM VALUES
            ('orders.paid', 'k', '{"n": 1}', '{}'),
            ('mail.sent', 'k', '{}', '{}'), ('orders..x', 'k', '{}', '{}'),
            ('orders', '', '{}', '{}'), ('orders', repeat('k', 1001), '{}', '{}'),
            ('orders', 'k', '{', '{}'), ('orders', 'k', '{}', '{"pgqueue.x": 1}'),
            ('orders', 'k', concat('"', repeat('x', 300), '"'), '{}'),
            ('orders', NULL, NULL, NULL)
        AS (name, key, payload, headers)
        """
    )

    write(
        frame,
        topic="orders.made",
        payloadBytesMax="256",
        refusedPath=str(tmp_path),
    )

    found = messages(database, "name, key, payload, headers")
    expected = [("orders", None, None, {}), ("orders.paid", "k", {"n": 1}, {})]
    assert expected == sorted(found, key=lambda row: row[0])
    refused = spark.read.parquet(str(tmp_path)).collect()
    assert 7 == len(refused)
    told = " | ".join(sorted(row.refused_reason for row in refused))
    for part in (
        *("cannot be called 'mail.sent'", "cannot be called 'orders..x'"),
        *("key has 0 characters", "key has 1,001 characters", "no JSON"),
        "keys that begin with 'pgqueue.' are reserved",
        "payload and headers take 304 bytes",
    ):
        assert part in told


def test_columns_are_a_payload_and_a_rate_is_a_time(spark, write, database, topic):
    """Without a column of that name; what has a time waits for it; of jobs as well."""
    frame = spark.range(5).selectExpr("id", "'ann' AS who", "1 AS key")
    write(frame, topic=topic, perSecond="2", headers='{"a": 1}')
    rows = database.execute(
        "SELECT m -> 'payload', m ->> 'key', m -> 'headers',"
        " extract(epoch FROM run_after - min(run_after) OVER ())::float8"
        " FROM pgqueue_job, LATERAL (SELECT args #> '{0,value}' AS m) message"
        " ORDER BY run_after"
    ).fetchall()
    assert [0, 0.5, 1, 1.5, 2] == [at for *_, at in rows]
    assert [{"id": n, "who": "ann"} for n in range(5)] == sorted(
        (payload for payload, *_ in rows), key=lambda payload: payload["id"]
    )
    assert "1" == rows[0][1]
    assert 1 == rows[0][2]["a"]

    write(frame.select("id"), task="shop.send", perSecond="10")
    assert [(5, 0.4)] == database.execute(
        "SELECT count(*), extract(epoch FROM max(run_after) - min(run_after))::float8"
        " FROM pgqueue_job WHERE task = 'shop.send'"
    ).fetchall()
