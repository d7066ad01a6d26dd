-- What a group reads next while it reads several generations of partitions: of each
-- partition its fence, the first message that is unread, NULL if there is none up to
-- in_bound, and up to which id it may be read. The horizon of the topic, in_bound, was
-- fetched in a statement before this one.
--
-- Called by log/generations.py, for workers, and by pgqueue_read(), for everybody else.
--
-- Messages of one key may stand in a partition of each generation. They are read in the
-- order of their ids, so a partition is read up to the first message that is unread in a
-- partition of another generation with which it may share keys: what comes before that
-- has been handled, since a position moves when its batch is done. The lowest unread
-- message of all is behind none, so somebody can always read on.
--
-- Two partitions share keys only where the hash of a key can lead to both: where their
-- places, from the first one of each generation on, are the same modulo the greatest
-- common divisor of the two counts. From 8 to 16, a new one waits for one of the old.
-- A partition of no generation stands for itself: somebody has changed the count by
-- hand, and nobody knows with whom it shares keys.
--
-- What was found stays true however old it is, but for a seek, which raises the fences
-- of all of the group's positions. So it holds for a claim that has the next fence.
--
-- Locks: none. A look at the index for each partition. Without nested loops where joins
-- can be hashed: of what is in memory nobody knows how many there are.
CREATE OR REPLACE FUNCTION pgqueue_unread(
    in_group bigint, in_topic integer, in_bound bigint, in_since timestamptz
) RETURNS TABLE (
    partition integer, fence bigint, first_unread bigint, up_to bigint,
    is_halted boolean
) LANGUAGE plpgsql STABLE SET enable_nestloop = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH part AS MATERIALIZED (
            SELECT p.partition::integer, p.fence, p.halted_at IS NOT NULL AS is_halted,
                   coalesce(made.first_partition, p.partition)::integer AS first,
                   coalesce(made.partitions, 1)::integer AS partitions,
                   (SELECT m.id FROM pgqueue_message m
                     WHERE m.topic_id = in_topic
                       AND (m.partition, m.id) > (p.partition, p.position)
                       AND (m.partition, m.id) <= (p.partition, in_bound)
                       AND m.published_at >= in_since
                     ORDER BY m.partition, m.id LIMIT 1) AS unread
              FROM pgqueue_position p
              LEFT JOIN (
                   SELECT t.first_partition, t.partitions FROM pgqueue_topic t
                    WHERE t.id = in_topic
                    UNION ALL
                   SELECT e.first_partition, e.partitions FROM pgqueue_generation e
                    WHERE e.topic_id = in_topic) made
                ON p.partition >= made.first_partition
               AND p.partition < made.first_partition + made.partitions
             WHERE p.group_id = in_group
        ), made AS MATERIALIZED (
            SELECT DISTINCT part.first, part.partitions FROM part
        ), pair AS MATERIALIZED (
            SELECT mine.first, other.first AS other,
                   gcd(mine.partitions, other.partitions) AS shared
              FROM made mine JOIN made other ON other.first <> mine.first
        ), behind AS MATERIALIZED (
            -- The lowest unread id by the place of partitions that share keys.
            SELECT pair.first, pair.other, (part.partition - part.first) % pair.shared
                       AS place, min(part.unread) AS low
              FROM pair JOIN part ON part.first = pair.other
             WHERE part.unread IS NOT NULL GROUP BY 1, 2, 3
        )
        SELECT part.partition, part.fence, part.unread,
               least(in_bound, min(behind.low) - 1), part.is_halted
          FROM part
          LEFT JOIN pair ON pair.first = part.first
          LEFT JOIN behind
            ON behind.first = pair.first AND behind.other = pair.other
           AND behind.place = (part.partition - part.first) % pair.shared
         GROUP BY part.partition, part.fence, part.unread, part.is_halted;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_unread(bigint, integer, bigint, timestamptz)
    FROM PUBLIC;
