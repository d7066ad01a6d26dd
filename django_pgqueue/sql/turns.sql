-- Says which jobs of fair lanes have their turn: some of each lane of a queue, in turn.
--
-- Called by a claim (queues/fair.py), which leases them. It also says whether it has come
-- to the last lane, whether those that it has seen may have more, which one the next call
-- goes on after, and in how many seconds the next job is due of those that have none now.
--
-- A loose index scan along pgqueue_job_fair: one probe per lane, which says whether it
-- has something due; so many that have nothing are passed by in one call. A lane has as many jobs
-- in a turn as its weight says, and as many turns as come to the number that is wanted.
-- Lanes that an operator has paused have none, and neither have jobs of a task that is
-- held (queues/held.py): those behind them in their lane go on, but where more than a
-- hundred are ahead, so that no claim walks over all of a long pause.
-- Where turns end in the middle, the next call goes on after the last one that had any.
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
    in_lanes integer,
    in_looks integer,
    in_jobs integer,
    in_passed bigint[],
    OUT ids bigint[],
    OUT is_end boolean,
    OUT has_more boolean,
    OUT last text,
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
    WITH RECURSIVE lane(name, due_at, place, due) AS (
        (SELECT j.lane, j.lane_due_at, 1,
                coalesce(j.lane_due_at <= statement_timestamp(), false)::integer
           FROM pgqueue_job j
          WHERE (j.queue, j.lane) > (in_queue, in_after) AND j.queue <= in_queue
            AND j.visible_at IS NULL AND j.lane_policy = 'fair'
          ORDER BY j.queue, j.lane, j.lane_due_at LIMIT 1)
        UNION ALL
        SELECT next.lane, next.lane_due_at, lane.place + 1, lane.due
               + coalesce(next.lane_due_at <= statement_timestamp(), false)::integer
          FROM lane CROSS JOIN LATERAL (
               SELECT j.lane, j.lane_due_at FROM pgqueue_job j
                WHERE (j.queue, j.lane) > (in_queue, lane.name) AND j.queue <= in_queue
                  AND j.visible_at IS NULL AND j.lane_policy = 'fair'
                ORDER BY j.queue, j.lane, j.lane_due_at LIMIT 1) next
         WHERE lane.due < in_lanes AND lane.place < in_looks
    ), told AS MATERIALIZED (
        SELECT lane.name, lane.place, head.lane_due_at AS due_at,
               greatest(coalesce(kept.weight, 1), 1) AS weight
          FROM lane
          LEFT JOIN pgqueue_lane kept ON kept.name = lane.name
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
        SELECT name, place, weight,
               weight * ceil(in_jobs::numeric / sum(weight) OVER ())::bigint AS quota
          FROM told WHERE due_at <= statement_timestamp()
    ), due AS MATERIALIZED (
        SELECT turn.name, turn.place, waiting.id,
               (waiting.number - 1) / turn.weight AS round,
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
         ORDER BY round, turn.place LIMIT in_jobs
    )
    SELECT ARRAY(SELECT due.id FROM due),
           (SELECT coalesce(max(due) < in_lanes AND max(place) < in_looks, true)
              FROM lane),
           (SELECT coalesce(bool_or(is_last), false) OR count(*) = in_jobs FROM due),
           coalesce((SELECT name FROM due ORDER BY round DESC, place DESC LIMIT 1),
                    (SELECT name FROM lane ORDER BY place DESC LIMIT 1)),
           (SELECT extract(epoch FROM min(due_at) - statement_timestamp())::float8
              FROM (SELECT due_at FROM lane UNION ALL SELECT due_at FROM told) later
             WHERE due_at > statement_timestamp())
      INTO ids, is_end, has_more, last, seconds;
END $$;
