-- Lets the jobs through that lanes have room for: parked jobs become visible.
--
-- Called by queues/lanes.py, in a transaction of its own: after the commit of whoever
-- has put jobs into these lanes, or taken some out. It says how many jobs it let
-- through, in which queues they are, and which lanes have a job whose row somebody has
-- locked: they want another call.
--
-- What a lane is, its newest parked job says. Without a lane_capacity it is a group:
-- one job at a time, in the order of their ids. A job whose time has not come holds
-- the others up, unless it has been tried: then it waits for its next attempt, and was
-- set aside. With a lane_capacity it is a limit: so many jobs at a time, first those
-- that have been due for longest.
--
-- What is visible counts, whether somebody has claimed it or not. So whoever makes a
-- job of a lane visible holds the lane's lock, and has counted after he got it: two
-- statements, since a statement sees what was committed when it began, however long it
-- then waits for a lock. Who takes a job away needs no lock: there is only more room.
--
-- A job becomes visible at the moment of its promotion: claims go by visible_at, and
-- would find an earlier one only when they are through with the later ones. Not
-- statement_timestamp(): that is before the wait for the lock.
--
-- Lanes are compared by range and ordered by first, and not asked for by "=": so only
-- the indexes of lanes have their order. A plan that was made for a table of a few rows
-- sorts, by the bitmap of another index, and is kept while the table grows: a promotion
-- of a hundred lanes then took 14 s. So the function turns off what is not a walk along
-- an index. Whether a job is parked still is asked in words that no index knows: for
-- "visible_at IS NULL", the index of claims was read in place of ids, all 100,000 jobs.
-- = ANY(ARRAY(…)): a join once flipped to a sequential scan.
--
-- Locks: an advisory lock of each lane (postgres/keys.py), in the order of their
-- hashes, until the transaction ends; another promotion of the same lane waits for it,
-- and nobody else does. Row locks on the jobs; SKIP LOCKED: one that is being
-- cancelled or changed is not waited for.
CREATE OR REPLACE FUNCTION pgqueue_promote(
    in_lanes text[],
    OUT jobs integer,
    OUT queues text[],
    OUT locked text[]
) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
AS $$
DECLARE
    home bigint := 'pgqueue_job'::regclass::oid;
    moment timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'pgqueue_promote() needs READ COMMITTED, and this transaction is %: it '
            'would count what it saw before it got the lock',
            current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction';
    END IF;
    PERFORM pg_advisory_xact_lock(706706, hashed.key)
       FROM (SELECT DISTINCT (hashtextextended(name, home) % 2147483647)::integer AS key
               FROM unnest(in_lanes) name ORDER BY key) hashed;
    moment := clock_timestamp();
    WITH lane AS MATERIALIZED (
        SELECT asked.name, newest.is_group,
               newest.capacity - (SELECT count(*) FROM (
                   SELECT FROM pgqueue_job j
                    WHERE j.lane = asked.name AND j.visible_at IS NOT NULL
                    LIMIT newest.capacity) held) AS room
          FROM (SELECT DISTINCT name FROM unnest(in_lanes) name) asked
         CROSS JOIN LATERAL (
               SELECT j.lane_capacity IS NULL AS is_group,
                      coalesce(j.lane_capacity, 1) AS capacity
                 FROM pgqueue_job j
                WHERE j.lane >= asked.name AND j.lane <= asked.name
                  AND j.visible_at IS NULL
                ORDER BY j.lane DESC, j.id DESC LIMIT 1) newest),
    first AS MATERIALIZED (
        SELECT lane.name, head.id
          FROM lane CROSS JOIN LATERAL (
               SELECT j.id, j.lane_due_at FROM pgqueue_job j
                WHERE j.lane >= lane.name AND j.lane <= lane.name
                  AND j.visible_at IS NULL
                  AND (j.deliveries = 0 OR j.lane_due_at <= moment)
                ORDER BY j.lane, j.id LIMIT 1) head
         WHERE lane.is_group AND lane.room > 0 AND head.lane_due_at <= moment
        UNION ALL
        SELECT lane.name, due.id
          FROM lane CROSS JOIN LATERAL (
               SELECT j.id FROM pgqueue_job j
                WHERE j.lane >= lane.name
                  AND (j.lane, j.lane_due_at) <= (lane.name, moment)
                  AND j.visible_at IS NULL AND j.lane_capacity IS NOT NULL
                ORDER BY j.lane, j.lane_due_at LIMIT greatest(lane.room, 0)) due
         WHERE NOT lane.is_group),
    free AS MATERIALIZED (
        SELECT j.id FROM pgqueue_job j
         WHERE j.id = ANY(ARRAY(SELECT id FROM first))
           AND num_nonnulls(j.lane_due_at) = 1
           FOR UPDATE SKIP LOCKED),
    promoted AS (
        UPDATE pgqueue_job AS j SET visible_at = moment, lane_due_at = NULL
         WHERE j.id = ANY(ARRAY(SELECT id FROM free))
           AND num_nonnulls(j.lane_due_at) = 1
        RETURNING j.id, j.queue)
    SELECT (SELECT count(*) FROM promoted),
           ARRAY(SELECT DISTINCT queue FROM promoted),
           ARRAY(SELECT DISTINCT name FROM first
                  WHERE NOT EXISTS (SELECT FROM promoted WHERE promoted.id = first.id))
      INTO jobs, queues, locked;
END $$;
