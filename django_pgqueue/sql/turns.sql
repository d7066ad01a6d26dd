-- Says which jobs of fair lanes have their turn: some of each lane of a queue, in turn.
--
-- Called by a claim (queues/fair.py), which leases them. It also says how many lanes it
-- has looked at, whether these may have more, which one the next call goes on after, and
-- in how many seconds the next job is due of those that have none now.
--
-- A loose index scan along pgqueue_job_fair: one probe per lane. A lane has as many jobs
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
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_turns(
    in_queue text,
    in_after text,
    in_lanes integer,
    in_jobs integer,
    OUT ids bigint[],
    OUT looked bigint,
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
    WITH RECURSIVE lane(name, place) AS (
        (SELECT j.lane, 1 FROM pgqueue_job j
          WHERE (j.queue, j.lane) > (in_queue, in_after) AND j.queue <= in_queue
            AND j.visible_at IS NULL AND j.lane_policy = 'fair'
          ORDER BY j.queue, j.lane LIMIT 1)
        UNION ALL
        SELECT (SELECT j.lane FROM pgqueue_job j
                 WHERE (j.queue, j.lane) > (in_queue, lane.name) AND j.queue <= in_queue
                   AND j.visible_at IS NULL AND j.lane_policy = 'fair'
                 ORDER BY j.queue, j.lane LIMIT 1), lane.place + 1
          FROM lane WHERE lane.name IS NOT NULL AND lane.place < in_lanes
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
         WHERE lane.name IS NOT NULL
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
                        ORDER BY j.queue, j.lane, j.lane_due_at
                        LIMIT turn.quota + beside) ahead
                WHERE ahead.task <> ALL(held)
                ORDER BY ahead.queue, ahead.lane, ahead.lane_due_at
                LIMIT turn.quota) waiting
         ORDER BY round, turn.place LIMIT in_jobs
    )
    SELECT ARRAY(SELECT due.id FROM due),
           (SELECT count(name) FROM lane),
           (SELECT coalesce(bool_or(is_last), false) OR count(*) = in_jobs FROM due),
           coalesce((SELECT name FROM due ORDER BY round DESC, place DESC LIMIT 1),
                    (SELECT max(name) FROM lane)),
           (SELECT extract(epoch FROM min(due_at) - statement_timestamp())::float8
              FROM told WHERE due_at > statement_timestamp())
      INTO ids, looked, has_more, last, seconds;
END $$;
