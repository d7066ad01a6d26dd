-- Lets the jobs through that lanes have room for: parked jobs become visible.
--
-- Called by queues/lanes.py, in a transaction of its own: after the commit of whoever
-- has put jobs into these lanes, or taken some out. It says how many jobs it let
-- through, in which queues they are, and which lanes have a job whose row somebody has
-- locked, or room for more than one call lets through: they want another one. And for
-- lanes with a rate that will let another one through by and by, when; one whose rate
-- would let another through now waits for something else, of which there is word: a
-- place, a time, a claim, or an operator.
--
-- What a lane is, its newest parked job says. Without a lane_capacity it is a group:
-- one job at a time, in the order of their ids. A job whose time has not come holds
-- the others up, unless it has been tried: then it waits for its next attempt, and was
-- set aside, by an operator or since its lane_policy is skip. With a lane_capacity it is
-- a limit: so many jobs at a time, first those that have been due for longest. An
-- operator's capacity, in pgqueue_lane, comes before that of a limit's jobs; and while he
-- has paused a lane, it has no room.
--
-- Of a fair lane nothing but a probe, see below, is let through here: whoever claims asks
-- for what it has room for (queues/fair.py). It is said in which queue there is something
-- due, by its hint.
--
-- The lane that has the name of a task is that of all its jobs: while it is paused, no
-- other lane of theirs has room. With breaker_trips, a circuit breaker has paused it,
-- and when that has ended, one job of the task is let through at a time, the probe, from
-- whatever lane. One that waits for its next attempt, by its own word, tries nothing, and
-- the next one does. Whoever promotes then holds the row of the task's lane, too. In a
-- fair lane of a queue there are jobs of several tasks: that of its first due one counts.
--
-- What is visible counts, whether somebody has claimed it or not. So whoever makes a
-- job of a lane visible holds the lane's lock, and has counted after he got it: two
-- statements, since a statement sees what was committed when it began, however long it
-- then waits for a lock. Who takes a job away needs no lock: there is only more room.
--
-- With a lane_spacing a lane has a rate, too: one job each so many seconds, and up to
-- lane_burst of them ahead of that. full_at is when it could let that many through at
-- once; each job moves it by one spacing, and how far ahead of now it is says how many
-- were let through of late. What was let through and not claimed may start any moment,
-- and all of it at once: so full_at is never nearer than these jobs take, from when they
-- are counted on: what was claimed since moment has just left them. Nor is it further
-- ahead than lane_burst jobs: by a slower rate, or by a clock that was put back since, it
-- was, and would hold the lane up for as long as that said. Hence in any time the
-- claims are no more than what the rate gives in it, and one burst. The proof
-- is in docs/explanation/lanes.md. In a group with a rate, one that was tried holds the
-- others up as any other does: it was parked for its next turn, and is still the first;
-- unless its lane skips what fails.
--
-- A job becomes visible at the moment of its promotion: claims go by visible_at, and
-- would find an earlier one only when they are through with the later ones. Not
-- statement_timestamp(): that is before the wait for the lock.
--
-- Where the order is that of ids, lanes are compared by range and ordered by first, and
-- not asked for by "=": so only the indexes of lanes have their order, and not that of
-- ids. But a comparison of rows, before PostgreSQL 18, ends no walk within a lane: so
-- none is an upper bound, and the newest is looked for where there is one. A plan that was made for a table of a few rows
-- sorts, by the bitmap of another index, and is kept while the table grows: a promotion
-- of a hundred lanes then took 14 s. So the function turns off what is not a walk along
-- an index. Whether a job is parked still is asked in words that no index knows: for
-- "visible_at IS NULL", the index of claims was read in place of ids, all 100,000 jobs.
-- = ANY(ARRAY(…)): a join once flipped to a sequential scan. And no EXISTS: in a plan of
-- an empty table it is a hash of all jobs, and NULL AND EXISTS (…) makes it.
--
-- Floors, which the caller keeps (worker/lanes/promoter.py), spare a walk over what has left
-- a lane, which nobody can vacuum while a snapshot is held. Each call has a number, which
-- the jobs that it lets through get: a later call of the same lane has a larger one. Nothing
-- visible of a lane has a smaller one than in_promotions says; nothing is parked with a
-- smaller id than in_ids, or due before in_dues, but what has a number: that was let
-- through before, or came into the lane otherwise than by being stored, and has indexes
-- of its own. Without floors all is looked at; what comes back, of lanes in which something
-- is parked, is from where on there is something left, and NULL is no news. A caller whose numbers are larger than ours has
-- them from before a failover: they say nothing.
--
-- in_moment is what the time is taken to be; by default, the server's once the lanes are
-- locked.
--
-- Locks: an advisory lock of each lane (postgres/keys.py), in the order of their
-- hashes, until the transaction ends; another promotion of the same lane waits for it,
-- and nobody else does. Then the rows of tasks whose breaker waits for its probe: few,
-- in the order of their names. Row locks on the jobs; SKIP LOCKED: one that is being
-- cancelled or changed is not waited for. Of lanes with a rate, a row lock on their row
-- of pgqueue_lane; an operator who pauses the lane waits for it, or it for him.
CREATE OR REPLACE FUNCTION pgqueue_promote(
    in_lanes text[],
    in_paced boolean DEFAULT true,
    in_promotions bigint[] DEFAULT '{}',
    in_ids bigint[] DEFAULT '{}',
    in_dues timestamptz[] DEFAULT '{}',
    in_moment timestamptz DEFAULT NULL,
    OUT jobs integer,
    OUT queues text[],
    OUT locked text[],
    OUT paced text[],
    OUT next_seconds float8[],
    OUT floored text[],
    OUT promotions bigint[],
    OUT ids bigint[],
    OUT dues timestamptz[]
) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
AS $$
DECLARE
    home bigint := 'pgqueue_job'::regclass::oid;
    moment timestamptz;
    number bigint;
    probed text[];
    probes bigint[];
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
    PERFORM FROM pgqueue_lane
      WHERE paused_at IS NOT NULL AND breaker_trips > 0
        AND paused_until <= clock_timestamp()
      ORDER BY name FOR UPDATE;
    moment := coalesce(in_moment, clock_timestamp());
    number := nextval('pgqueue_promotion');
    IF number < ANY(in_promotions) THEN
        in_promotions := '{}';
        in_ids := '{}';
        in_dues := '{}';
    END IF;
    WITH seen AS MATERIALIZED (SELECT clock_timestamp() AS at),
    told AS MATERIALIZED (
        SELECT seen.at AS seen_at, asked.*, newest.is_parked, newest.is_group,
               newest.policy,
               CASE WHEN of_task.breaker_trips > 0 THEN of_task.name END AS probing,
               CASE WHEN kept.paused_at IS NOT NULL
                         AND coalesce(kept.paused_until > moment, true) THEN 0
                    WHEN of_task.paused_at IS NOT NULL
                         AND coalesce(of_task.paused_until > moment, true) THEN 0
                    WHEN coalesce(of_task.breaker_trips, 0) > 0
                         AND (SELECT j.visible_at <= moment OR j.leased_by IS NOT NULL
                                FROM pgqueue_job j WHERE j.id = of_task.probe_id) THEN 0
                    WHEN newest.policy = 'fair' AND in_paced
                         AND coalesce(of_task.breaker_trips, 0) = 0 THEN 0
                    WHEN newest.is_group THEN 1
                    ELSE coalesce(kept.capacity, newest.capacity) END AS capacity,
               CASE WHEN NOT in_paced THEN NULL
                    WHEN newest.is_parked THEN newest.spacing
                    ELSE kept.spacing END AS spacing,
               CASE WHEN newest.is_parked THEN newest.burst ELSE kept.burst END AS burst,
               kept.full_at, coalesce(kept.unclaimed, 0) AS unclaimed
          FROM seen
         CROSS JOIN (
               SELECT DISTINCT given.name, coalesce(given.promotion, 0) AS promotion,
                      coalesce(given.id, 0) AS id, coalesce(given.due, '-infinity') AS due
                 FROM unnest(in_lanes, in_promotions, in_ids, in_dues)
                      AS given(name, promotion, id, due)) asked
          LEFT JOIN pgqueue_lane kept ON kept.name = asked.name
          LEFT JOIN LATERAL (
               SELECT true AS is_parked, j.lane_capacity IS NULL AS is_group,
                      j.lane_capacity AS capacity, j.lane_policy AS policy, j.task,
                      CASE WHEN j.lane_spacing IS NOT NULL
                           THEN least(greatest(j.lane_spacing, 0.000001), 2678400)
                           END AS spacing,
                      least(greatest(j.lane_burst, 1), 100000) AS burst
                 FROM ((SELECT j.lane_capacity, j.lane_policy, j.task, j.lane_spacing,
                               j.lane_burst
                          FROM pgqueue_job j
                         WHERE (j.lane, j.id) >= (asked.name, asked.id)
                           AND j.lane <= asked.name AND j.visible_at IS NULL
                           AND (asked.id = 0 OR (
                                SELECT first.id FROM pgqueue_job first
                                 WHERE (first.lane, first.id) >= (asked.name, asked.id)
                                   AND first.lane <= asked.name
                                   AND first.visible_at IS NULL
                                 ORDER BY first.lane, first.id LIMIT 1) IS NOT NULL)
                         ORDER BY j.lane DESC, j.id DESC LIMIT 1)
                        UNION ALL
                       (SELECT j.lane_capacity, j.lane_policy, j.task, j.lane_spacing,
                               j.lane_burst
                          FROM pgqueue_job j
                         WHERE j.lane = asked.name AND j.id < asked.id
                           AND j.visible_at IS NULL AND j.promotion IS NOT NULL
                         ORDER BY j.lane DESC, j.id DESC, j.promotion DESC LIMIT 1)
                        LIMIT 1) j) newest ON true
          LEFT JOIN LATERAL (
               SELECT j.task FROM pgqueue_job j
                WHERE newest.policy = 'fair' AND j.lane >= asked.name
                  AND (j.lane, j.lane_due_at) <= (asked.name, moment)
                  AND j.visible_at IS NULL AND j.lane_capacity IS NOT NULL
                ORDER BY j.lane, j.lane_due_at LIMIT 1) head ON true
          LEFT JOIN pgqueue_lane of_task
            ON of_task.name = coalesce(head.task, newest.task)
         WHERE newest.is_parked OR kept.spacing IS NOT NULL),
    paid AS MATERIALIZED (
        SELECT told.name, waiting.jobs AS unclaimed, full_at.seconds AS full_seconds,
               greatest(floor(told.burst - full_at.seconds / told.spacing + 1e-6), 0)
                   ::integer AS tokens
          FROM told
         CROSS JOIN LATERAL (
               SELECT count(*) AS jobs FROM (
                   SELECT FROM pgqueue_job j
                    WHERE (j.lane, coalesce(j.promotion, 0))
                          >= (told.name, told.promotion)
                      AND j.lane <= told.name AND j.visible_at IS NOT NULL
                      AND j.leased_by IS NULL
                    LIMIT told.burst) unclaimed) waiting
         CROSS JOIN LATERAL (
               SELECT greatest(told.unclaimed, waiting.jobs) AS unclaimed) at_once
         CROSS JOIN LATERAL (
               SELECT greatest(least(coalesce(extract(epoch FROM told.full_at - moment), 0)
                                         ::float8,
                                     extract(epoch FROM told.seen_at - moment)::float8
                                     + told.burst * told.spacing),
                               CASE WHEN at_once.unclaimed > 0 THEN
                               extract(epoch FROM told.seen_at - moment)::float8
                               + at_once.unclaimed * told.spacing ELSE 0 END)
                      AS seconds) full_at
         WHERE told.spacing IS NOT NULL),
    lane AS MATERIALIZED (
        SELECT told.name, told.is_group, told.spacing, told.policy, told.probing,
               told.id, told.due,
               CASE WHEN told.capacity > 0 AND told.policy IS DISTINCT FROM 'fair'
                    THEN coalesce(held.first, number) END AS promotion,
               least(CASE WHEN told.probing IS NULL THEN 1000 ELSE 1 END,
                     told.capacity - held.jobs,
                     (SELECT tokens FROM paid WHERE paid.name = told.name)) AS room
          FROM told CROSS JOIN LATERAL (
               SELECT count(*) AS jobs, min(visible.promotion) AS first FROM (
                   SELECT coalesce(j.promotion, 0) AS promotion FROM pgqueue_job j
                    WHERE (j.lane, coalesce(j.promotion, 0))
                          >= (told.name, told.promotion)
                      AND j.lane <= told.name AND j.visible_at IS NOT NULL
                    ORDER BY j.lane, coalesce(j.promotion, 0)
                    LIMIT told.capacity) visible) held
         WHERE told.is_parked),
    parked AS MATERIALIZED (
        SELECT lane.name, lane.is_group, lane.room, lane.policy, lane.probing,
               lane.promotion, stored.id AS stored_id, stored.lane_due_at AS stored_due,
               back.id AS back_id, back.lane_due_at AS back_due,
               due.ids || due_back.ids AS ids, due.dues || due_back.dues AS dues,
               due.first AS first_due
          FROM lane
          LEFT JOIN LATERAL (
               SELECT j.id, j.lane_due_at FROM pgqueue_job j
                WHERE lane.is_group AND lane.room > 0
                  AND (j.lane, j.id) >= (lane.name, lane.id) AND j.lane <= lane.name
                  AND j.visible_at IS NULL
                  AND (j.deliveries = 0 OR j.lane_due_at <= moment
                       OR (lane.spacing IS NOT NULL
                           AND lane.policy IS DISTINCT FROM 'skip'))
                ORDER BY j.lane, j.id LIMIT 1) stored ON true
          LEFT JOIN LATERAL (
               SELECT j.id, j.lane_due_at FROM pgqueue_job j
                WHERE lane.is_group AND lane.room > 0 AND lane.id > 0
                  AND j.lane = lane.name AND j.id < lane.id
                  AND j.visible_at IS NULL AND j.promotion IS NOT NULL
                  AND (j.deliveries = 0 OR j.lane_due_at <= moment
                       OR (lane.spacing IS NOT NULL
                           AND lane.policy IS DISTINCT FROM 'skip'))
                ORDER BY j.lane, j.id, j.promotion LIMIT 1) back ON true
         CROSS JOIN LATERAL (
               SELECT coalesce(array_agg(found.id), '{}') AS ids,
                      coalesce(array_agg(found.lane_due_at), '{}') AS dues,
                      min(found.lane_due_at) AS first
                 FROM (SELECT j.id, j.lane_due_at FROM pgqueue_job j
                        WHERE NOT lane.is_group AND j.lane = lane.name
                          AND j.lane_due_at >= lane.due AND j.lane_due_at <= moment
                          AND j.visible_at IS NULL AND j.lane_capacity IS NOT NULL
                        ORDER BY j.lane, j.lane_due_at
                        LIMIT greatest(lane.room, 0)) found) due
         CROSS JOIN LATERAL (
               SELECT coalesce(array_agg(found.id), '{}') AS ids,
                      coalesce(array_agg(found.lane_due_at), '{}') AS dues
                 FROM (SELECT j.id, j.lane_due_at FROM pgqueue_job j
                        WHERE NOT lane.is_group AND lane.due > '-infinity'
                          AND j.lane = lane.name AND j.lane_due_at < lane.due
                          AND j.lane_due_at <= moment AND j.visible_at IS NULL
                          AND j.lane_capacity IS NOT NULL AND j.promotion IS NOT NULL
                        ORDER BY j.lane, j.lane_due_at, j.id
                        LIMIT greatest(lane.room, 0)) found) due_back),
    next AS MATERIALIZED (
        SELECT name, probing, coalesce(back_id, stored_id) AS id FROM parked
         WHERE is_group
           AND CASE WHEN back_id IS NULL THEN stored_due ELSE back_due END <= moment
        UNION ALL
        SELECT parked.name, parked.probing, due.id
          FROM parked CROSS JOIN LATERAL (
               SELECT found.id FROM unnest(parked.ids, parked.dues) AS found(id, due)
                ORDER BY found.due LIMIT greatest(parked.room, 0)) due
         WHERE NOT parked.is_group),
    first AS MATERIALIZED (
        SELECT name, id FROM next
         WHERE probing IS NULL
            OR id = (SELECT min(id) FROM next other WHERE other.probing = next.probing)),
    free AS MATERIALIZED (
        SELECT j.id FROM pgqueue_job j
         WHERE j.id = ANY(ARRAY(SELECT id FROM first))
           AND num_nonnulls(j.lane_due_at) = 1
           FOR UPDATE SKIP LOCKED),
    promoted AS (
        UPDATE pgqueue_job AS j SET visible_at = moment, lane_due_at = NULL,
               promotion = number
         WHERE j.id = ANY(ARRAY(SELECT id FROM free))
           AND num_nonnulls(j.lane_due_at) = 1
        RETURNING j.id, j.queue, j.lane, j.task),
    counted AS MATERIALIZED (
        SELECT paid.name, told.spacing, told.burst, told.is_parked,
               paid.unclaimed + now.jobs AS unclaimed,
               paid.full_seconds + now.jobs * told.spacing AS full_seconds
          FROM paid JOIN told ON told.name = paid.name
         CROSS JOIN LATERAL (
               SELECT count(*) AS jobs FROM promoted WHERE promoted.lane = paid.name) now),
    noted AS (
        INSERT INTO pgqueue_lane AS kept (name, spacing, burst, full_at, unclaimed)
        SELECT name, spacing, burst, moment + make_interval(secs => full_seconds),
               unclaimed
          FROM counted
        ON CONFLICT (name) DO UPDATE
           SET spacing = EXCLUDED.spacing, burst = EXCLUDED.burst,
               full_at = EXCLUDED.full_at, unclaimed = EXCLUDED.unclaimed),
    soon AS MATERIALIZED (
        SELECT name, full_seconds - (burst - 1) * spacing AS seconds
          FROM counted
         WHERE is_parked AND unclaimed < burst
           AND full_seconds > (burst - 1) * spacing)
    SELECT (SELECT count(*) FROM promoted),
           ARRAY(SELECT queue FROM promoted
                 UNION
                 SELECT '!fair:' || due.queue FROM lane CROSS JOIN LATERAL (
                        SELECT j.queue FROM pgqueue_job j
                         WHERE lane.policy = 'fair' AND in_paced AND j.lane >= lane.name
                           AND (j.lane, j.lane_due_at) <= (lane.name, moment)
                           AND j.visible_at IS NULL AND j.lane_capacity IS NOT NULL
                         ORDER BY j.lane, j.lane_due_at LIMIT 1) due),
           ARRAY(SELECT name FROM first
                  WHERE NOT EXISTS (SELECT FROM promoted WHERE promoted.id = first.id)
                 UNION
                 SELECT lane.name FROM lane
                  WHERE lane.room = 1000
                    AND lane.room = (SELECT count(*) FROM promoted
                                      WHERE promoted.lane = lane.name)),
           ARRAY(SELECT name FROM soon ORDER BY name),
           ARRAY(SELECT greatest(seconds, 0) FROM soon ORDER BY name),
           ARRAY(SELECT name FROM parked), ARRAY(SELECT promotion FROM parked),
           ARRAY(SELECT CASE WHEN is_group AND room > 0
                             THEN coalesce(stored_id, 9223372036854775807) END
                   FROM parked),
           ARRAY(SELECT CASE WHEN NOT is_group AND room > 0 AND policy IS NULL
                             THEN coalesce(first_due, moment) END
                   FROM parked),
           ARRAY(SELECT task FROM promoted
                  WHERE task = ANY(ARRAY(SELECT lane.probing FROM lane)) ORDER BY id),
           ARRAY(SELECT id FROM promoted
                  WHERE task = ANY(ARRAY(SELECT lane.probing FROM lane)) ORDER BY id)
      INTO jobs, queues, locked, paced, next_seconds, floored, promotions, ids, dues,
           probed, probes;
    IF probes <> '{}' THEN
        UPDATE pgqueue_lane SET probe_id = probe.id
          FROM unnest(probed, probes) AS probe(task, id)
         WHERE name = probe.task;
    END IF;
END $$;
