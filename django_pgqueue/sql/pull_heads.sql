-- Says which messages of a pull queue are the first of their lanes, due, and in lanes
-- with room: those that pgqueue_receive() may take next, at most in_limit. It has the
-- locks of their lanes then.
--
-- Called by pgqueue_receive().
--
-- A loose walk along pgqueue_job_pull, one probe per lane, in a ring from a place that is
-- drawn by lot: so no lane is always the last, though nobody keeps where a walk has
-- ended. It ends when it has found sixteen lanes with room, or in_limit if that is more,
-- or has looked at two thousand. Of what it has found, and of so many messages that are
-- visible, those that have been due for longest are chosen, the higher priority first: so
-- neither kind waits for all of the other.
--
-- What is a lane's first, and what holds it up, is as in promote.sql; no worker promotes
-- lanes of pull queues. All is compared and ordered by the columns of the indexes, for
-- the reasons that are told there.
--
-- Locks: those of the chosen lanes, as promote.sql, until the caller's transaction ends;
-- but it waits for none. A lane whose lock somebody has is left out: he is about to take
-- its message, or to leave it to the next call.
CREATE OR REPLACE FUNCTION pgqueue_pull_heads(in_queue text, in_limit integer)
RETURNS bigint[] LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    home bigint := 'pgqueue_job'::regclass::oid;
    start bigint := (random() * 18e18 - 9e18)::bigint;
    ids bigint[];
BEGIN
    -- What is no lane is where the walk begins, turns to the first one, or ends.
    WITH RECURSIVE lane(hash, name, id, priority, due_at, has_room, place, rooms,
                        has_turned, is_end) AS (
        SELECT start, ''::varchar, NULL::bigint, NULL::smallint, NULL::timestamptz,
               false, 0, 0, false, false
        UNION ALL
        SELECT coalesce(next.hash, -9223372036854775808), coalesce(next.name, ''),
               next.id, next.priority, next.due_at, coalesce(next.has_room, false),
               lane.place + 1, lane.rooms + coalesce(next.has_room, false)::integer,
               lane.has_turned OR next.name IS NULL,
               lane.has_turned AND next.name IS NULL
          FROM lane LEFT JOIN LATERAL (
               SELECT found.hash, found.name, head.id, head.priority,
                      head.lane_due_at AS due_at,
                      head.lane_due_at <= statement_timestamp()
                      AND (SELECT j.id FROM pgqueue_job j
                            WHERE (j.lane, coalesce(j.promotion, 0)) >= (found.name, 0)
                              AND j.lane <= found.name AND j.visible_at IS NOT NULL
                            ORDER BY j.lane, coalesce(j.promotion, 0) LIMIT 1) IS NULL
                      AND (SELECT l.name FROM pgqueue_lane l
                            WHERE l.name IN (found.name, 'pgqueue.pull')
                              AND l.paused_at IS NOT NULL
                              AND coalesce(l.paused_until > statement_timestamp(), true)
                            LIMIT 1) IS NULL AS has_room
                 FROM (SELECT hashtextextended(j.lane, 0) AS hash, j.lane AS name
                         FROM pgqueue_job j
                        WHERE (j.queue, hashtextextended(j.lane, 0), j.lane)
                              > (in_queue, lane.hash, lane.name)
                          AND (j.queue, hashtextextended(j.lane, 0))
                              <= (in_queue, CASE WHEN lane.has_turned THEN start - 1
                                                 ELSE 9223372036854775807 END)
                          AND j.visible_at IS NULL AND j.task = 'pgqueue.pull'
                        ORDER BY j.queue, hashtextextended(j.lane, 0), j.lane, j.id
                        LIMIT 1) found
                 LEFT JOIN LATERAL (
                      SELECT j.id, j.priority, j.lane_due_at FROM pgqueue_job j
                       WHERE (j.queue, hashtextextended(j.lane, 0), j.lane)
                             >= (in_queue, found.hash, found.name)
                         AND (j.queue, hashtextextended(j.lane, 0), j.lane)
                             <= (in_queue, found.hash, found.name)
                         AND j.visible_at IS NULL AND j.task = 'pgqueue.pull'
                         AND (j.deliveries = 0 OR j.lane_due_at <= statement_timestamp())
                       ORDER BY j.queue, hashtextextended(j.lane, 0), j.lane, j.id
                       LIMIT 1) head ON true) next ON true
         WHERE NOT lane.is_end AND lane.rooms < greatest(in_limit, 16)
           AND lane.place < 2000
    ), head AS MATERIALIZED (
        SELECT lane.name, lane.id, lane.priority, lane.due_at FROM lane
         WHERE lane.has_room
    ), band AS (
        SELECT (SELECT j.priority FROM pgqueue_job j
                 WHERE j.queue = in_queue AND j.visible_at <= statement_timestamp()
                 ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1) AS priority
         WHERE (SELECT count(*) FROM head) > 0
        UNION ALL
        SELECT (SELECT j.priority FROM pgqueue_job j
                 WHERE j.queue = in_queue AND j.priority < band.priority
                 ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1)
          FROM band WHERE band.priority IS NOT NULL
    )
    SELECT array_agg(chosen.id) INTO ids
      FROM (SELECT waiting.name, waiting.id
              FROM (SELECT head.name, head.id, head.priority, head.due_at FROM head
                    UNION ALL
                    SELECT NULL, due.id, due.priority, due.visible_at
                      FROM band
                     CROSS JOIN LATERAL (
                           SELECT j.id, j.priority, j.visible_at FROM pgqueue_job j
                            WHERE j.queue = in_queue AND j.priority = band.priority
                              AND j.visible_at <= statement_timestamp()
                            ORDER BY j.queue, j.priority DESC, j.visible_at
                            LIMIT in_limit) due) waiting
             ORDER BY waiting.priority DESC, waiting.due_at LIMIT in_limit) chosen
     WHERE chosen.name IS NOT NULL
       AND pg_try_advisory_xact_lock(
           706706, (hashtextextended(chosen.name, home) % 2147483647)::integer);
    RETURN ids;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_heads(text, integer) FROM PUBLIC;
