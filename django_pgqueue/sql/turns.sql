-- Says which jobs of fair lanes have their turn: some of each lane of a queue, in turn.
--
-- Called by a claim (queues/fair.py), which leases them. It also says whether another call
-- may find more, whose turn was the last and how many jobs it has had in it, and in how
-- many seconds the next job is due of those lanes that have none now.
--
-- A loose index scan along pgqueue_job_fair, in a ring from the lane on whose turn was the
-- last: one probe per lane, which says whether it has something due; so many that have
-- nothing are passed by in one call. A lane has as many jobs in a turn as its weight says,
-- and as many turns as come to the number that is wanted. What it has had of its turn
-- before counts, so that calls for one job, or for an odd number, give nobody more than
-- his part. Lanes that an operator has paused have none, and neither have jobs of a task
-- that is held (queues/held.py): those behind them in their lane go on, but where more
-- than a hundred are ahead, so that no claim walks over all of a long pause.
--
-- A call that has found no job has looked at some of the lanes: the next one goes on, up
-- to where the first of them began. That is in_until, and in_after for the first.
--
-- Rows are compared and ordered by all columns of that index, the queue included, so
-- that no other fits. And it turns off what is not a walk along an index, as promote.sql
-- does: of a table that was empty when it was analysed, the planner expects one row, and
-- came to sort 100,000 for each claim.
--
-- Locks: none. in_passed: jobs that somebody had locked when they were asked for before.
-- Else those behind them in their lane would wait for as long as he keeps them.
CREATE OR REPLACE FUNCTION pgqueue_turns(
    in_queue text,
    in_after text,
    in_spent integer,
    in_until text,
    in_lanes integer,
    in_looks integer,
    in_jobs integer,
    in_passed bigint[],
    OUT ids bigint[],
    OUT has_more boolean,
    OUT last text,
    OUT spent integer,
    OUT seconds float8
) LANGUAGE plpgsql STABLE
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
AS $$
DECLARE
    held text[] := ARRAY(
        SELECT l.name FROM pgqueue_lane l
         WHERE l.paused_at IS NOT NULL
           AND (l.paused_until IS NULL OR l.paused_until > statement_timestamp()
                OR l.breaker_trips > 0));
    beside integer := CASE WHEN held = '{}' THEN 0 ELSE 100 END;
BEGIN
    -- What is no lane is where the walk begins, turns to the first one, or ends.
    WITH RECURSIVE lane(name, edge, due_at, place, due, is_lane, has_turned, is_end) AS (
        SELECT in_after, '-infinity'::timestamptz, NULL::timestamptz, 0, 0,
               false, in_after < in_until, false
        UNION ALL
        SELECT coalesce(next.lane, ''),
               CASE WHEN next.lane IS NULL THEN '-infinity'::timestamptz
                    ELSE 'infinity' END,
               next.lane_due_at, lane.place + 1, lane.due
               + coalesce(next.lane_due_at <= statement_timestamp(), false)::integer,
               next.lane IS NOT NULL, lane.has_turned OR next.lane IS NULL,
               lane.has_turned AND next.lane IS NULL
          FROM lane LEFT JOIN LATERAL (
              (SELECT j.lane, j.lane_due_at FROM pgqueue_job j
                WHERE NOT lane.has_turned AND j.queue <= in_queue
                  AND (j.queue, j.lane, j.lane_due_at) > (in_queue, lane.name, lane.edge)
                  AND j.visible_at IS NULL AND j.lane_policy = 'fair'
                ORDER BY j.queue, j.lane, j.lane_due_at LIMIT 1)
               UNION ALL
              (SELECT j.lane, j.lane_due_at FROM pgqueue_job j
                WHERE lane.has_turned AND (j.queue, j.lane) < (in_queue, in_until)
                  AND (j.queue, j.lane, j.lane_due_at) > (in_queue, lane.name, lane.edge)
                  AND j.visible_at IS NULL AND j.lane_policy = 'fair'
                ORDER BY j.queue, j.lane, j.lane_due_at LIMIT 1)) next ON true
         WHERE NOT lane.is_end AND lane.due < in_lanes AND lane.place < in_looks
    ), told AS MATERIALIZED (
        SELECT lane.name, lane.place, head.lane_due_at AS due_at, weighs.weight,
               CASE WHEN lane.name = in_after THEN least(in_spent, weighs.weight)
                    ELSE 0 END AS had
          FROM lane
          LEFT JOIN pgqueue_lane kept ON kept.name = lane.name
         CROSS JOIN LATERAL (
               SELECT greatest(coalesce(kept.weight, 1), 1) AS weight) weighs
         CROSS JOIN LATERAL (
               SELECT waiting.lane_due_at
                 FROM (SELECT j.queue, j.lane, j.lane_due_at, j.task
                         FROM pgqueue_job j
                        WHERE (j.queue, j.lane) >= (in_queue, lane.name)
                          AND (j.queue, j.lane) <= (in_queue, lane.name)
                          AND j.visible_at IS NULL AND j.lane_policy = 'fair'
                        ORDER BY j.queue, j.lane, j.lane_due_at
                        LIMIT 1 + beside) waiting
                WHERE waiting.task <> ALL(held)
                ORDER BY waiting.queue, waiting.lane, waiting.lane_due_at LIMIT 1) head
         WHERE lane.due_at <= statement_timestamp()
           AND coalesce(kept.paused_until <= statement_timestamp(),
                        kept.paused_at IS NULL)
    ), turn AS MATERIALIZED (
        SELECT name, place, weight, had,
               weight * ceil((in_jobs + sum(had) OVER ())::numeric
                             / sum(weight) OVER ())::bigint AS quota
          FROM told WHERE due_at <= statement_timestamp()
    ), due AS MATERIALIZED (
        SELECT turn.name, turn.place, waiting.id,
               (turn.had + waiting.number - 1) / turn.weight AS round,
               (turn.had + waiting.number - 1) % turn.weight + 1 AS share,
               waiting.number = turn.quota AS is_last
          FROM turn
         CROSS JOIN LATERAL (
               SELECT ahead.id, row_number() OVER (
                          ORDER BY ahead.queue, ahead.lane, ahead.lane_due_at) AS number
                 FROM (SELECT j.id, j.queue, j.lane, j.lane_due_at, j.task
                         FROM pgqueue_job j
                        WHERE (j.queue, j.lane) >= (in_queue, turn.name)
                          AND (j.queue, j.lane, j.lane_due_at)
                              <= (in_queue, turn.name, statement_timestamp())
                          AND j.visible_at IS NULL AND j.lane_policy = 'fair'
                          AND j.id <> ALL(in_passed)
                        ORDER BY j.queue, j.lane, j.lane_due_at
                        LIMIT turn.quota + beside) ahead
                WHERE ahead.task <> ALL(held)
                ORDER BY ahead.queue, ahead.lane, ahead.lane_due_at
                LIMIT turn.quota) waiting
         ORDER BY round, turn.place, share LIMIT in_jobs
    )
    SELECT ARRAY(SELECT due.id FROM due),
           NOT EXISTS (SELECT FROM lane WHERE is_end)
           OR (SELECT coalesce(bool_or(is_last), false) OR count(*) = in_jobs FROM due),
           ended.name, ended.share,
           (SELECT extract(epoch FROM min(due_at) - statement_timestamp())::float8
              FROM (SELECT due_at FROM lane UNION ALL SELECT due_at FROM told) later
             WHERE due_at > statement_timestamp())
      INTO ids, has_more, last, spent, seconds
      FROM (SELECT 1) one
      LEFT JOIN LATERAL (
           (SELECT due.name, due.share::integer AS share, 1 AS choice
              FROM due ORDER BY round DESC, place DESC, due.share DESC LIMIT 1)
            UNION ALL
           (SELECT lane.name, 1000000, 2 FROM lane
             WHERE is_lane ORDER BY lane.place DESC LIMIT 1)
            ORDER BY choice LIMIT 1) ended ON true;
END $$;
