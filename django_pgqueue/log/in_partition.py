"""
In partition: how a statement looks into a partition that a join tells it.

By `m.partition = p.partition … ORDER BY m.id`, ids are in order along the primary key,
too. Where statistics know one busy partition and no other, a plan takes that instead of
pgqueue_message_log, and reads all that the busy one has to find that an idle one has
nothing. Two ends in the order of (partition, id) leave it the index of the log alone.
"""

from __future__ import annotations

# What such a look is sorted by, with a limit. In a transaction with Plans.IN_ORDER, and
# in along_index() where it counts: else a plan may read all of a partition, and sort.
RISING = "ORDER BY m.partition, m.id"
FALLING = "ORDER BY m.partition DESC, m.id DESC"

# The partitions of a topic t, those of former generations as well, as numbers part.
ALL_PARTS = """(
              SELECT t.first_partition AS first, t.partitions
               UNION ALL
              SELECT e.first_partition, e.partitions FROM pgqueue_generation e
               WHERE e.topic_id = t.id) made
        CROSS JOIN generate_series(
                  made.first::int, made.first + made.partitions - 1) part"""


def within(
    partition: str, *, after: str | None = None, up_to: str | None = None
) -> str:
    """
    Return the condition for messages *m* of a partition, along the index of the log.

    Args:
        partition: SQL for its number.
        after: SQL for the id that theirs are above; None: any.
        up_to: SQL for the highest id; None: any.
    """
    low = f"(m.partition, m.id) > ({partition}, {after})"
    high = f"(m.partition, m.id) <= ({partition}, {up_to})"
    return (
        f"{low if after else f'm.partition >= {partition}'}"
        f" AND {high if up_to else f'm.partition <= {partition}'}"
    )
