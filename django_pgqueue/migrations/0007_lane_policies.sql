-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- job_place.sql
CREATE OR REPLACE FUNCTION pgqueue_job_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.lane := nullif(NEW.lane, '');
    IF NEW.lane IS NOT NULL THEN
        NEW.visible_at := NULL;
        NEW.lane_due_at := greatest(NEW.run_after, clock_timestamp());
        IF NOT NEW.lane_spacing BETWEEN 0.000001 AND 2678400
           OR NOT NEW.lane_burst BETWEEN 1 AND 100000 THEN
            RAISE 'pgqueue_job refuses lane_spacing %, lane_burst %: the one is from '
                '0.000001 to 2678400 seconds, the other from 1 to 100000 '
                '(pgqueue_job_lane_has_rate).',
                NEW.lane_spacing, NEW.lane_burst
                USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                      CONSTRAINT = 'pgqueue_job_lane_has_rate',
                      HINT = 'Without lane_spacing it has no rate; without lane_burst '
                          'its burst is 1.';
        END IF;
        IF NEW.lane_policy NOT IN ('skip', 'dead-letter', 'fair') THEN
            RAISE 'pgqueue_job refuses lane_policy %: it is skip or dead-letter of a '
                'group, or fair (pgqueue_job_lane_policy).', NEW.lane_policy
                USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                      CONSTRAINT = 'pgqueue_job_lane_policy',
                      HINT = 'Without lane_policy, jobs of a group wait for one that '
                          'fails.';
        END IF;
        IF NEW.lane_policy = 'fair' THEN
            NEW.lane_capacity := coalesce(NEW.lane_capacity, 100000);
        END IF;
    ELSE
        NEW.visible_at := greatest(NEW.run_after, clock_timestamp());
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_job_place BEFORE INSERT ON pgqueue_job
    FOR EACH ROW WHEN (NEW.lane IS NOT NULL OR NEW.run_after IS NOT NULL)
    EXECUTE FUNCTION pgqueue_job_place();

-- promote.sql
CREATE OR REPLACE FUNCTION pgqueue_promote(
    in_lanes text[],
    in_paced boolean DEFAULT true,
    in_promotions bigint[] DEFAULT '{}',
    in_ids bigint[] DEFAULT '{}',
    in_dues timestamptz[] DEFAULT '{}',
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
    moment := clock_timestamp();
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
               SELECT greatest(extract(epoch FROM told.full_at - moment)::float8,
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

-- retake_keys.sql
CREATE OR REPLACE FUNCTION pgqueue_retake_keys(
    in_ids bigint[],
    in_ran boolean[],
    in_patience text,
    OUT out_id bigint,
    OUT out_outcome text,
    OUT out_holder bigint
) RETURNS SETOF record LANGUAGE plpgsql SET lock_timeout = '10ms' AS $$
#variable_conflict use_column
DECLARE
    job record;
BEGIN
    PERFORM set_config('lock_timeout', in_patience, true);
    FOR job IN
        SELECT j.id, j.queued_key AS key, back.ran
          FROM unnest(in_ids, in_ran) AS back(id, ran)
          JOIN pgqueue_job j ON j.id = back.id
         WHERE j.id = ANY(in_ids) AND j.queued_key IS NOT NULL
           AND j.dedup_key IS NULL AND j.leased_by IS NULL
           AND j.cancel_requested_at IS NULL
         ORDER BY j.queued_key COLLATE "C", j.id DESC
    LOOP
        out_id := job.id;
        FOR round IN 1..10 LOOP
            out_outcome := 'without';
            out_holder := NULL;
            BEGIN
                UPDATE pgqueue_job AS j SET dedup_key = job.key
                 WHERE j.id = job.id AND j.dedup_key IS NULL AND j.leased_by IS NULL;
                IF FOUND THEN
                    out_outcome := 'taken';
                END IF;
                EXIT;
            EXCEPTION
                WHEN unique_violation THEN
                    NULL;
                WHEN lock_not_available OR deadlock_detected THEN
                    out_outcome := 'waits';
                    EXIT;
            END;
            SELECT j.id INTO out_holder FROM pgqueue_job j WHERE j.dedup_key = job.key;
            CONTINUE WHEN NOT FOUND;
            IF job.ran THEN
                BEGIN
                    WITH gone AS (
                        DELETE FROM pgqueue_job AS j
                         WHERE j.id = job.id AND j.leased_by IS NULL
                        RETURNING j.*)
                    INSERT INTO pgqueue_archived_job (
                        id, queue, task, args, kwargs, headers, priority, run_after,
                        enqueued_at, expires_at, attempt, max_attempts, crashes,
                        deliveries, lane, lane_capacity, lane_spacing, lane_burst,
                        lane_policy, progress, workflow_id, parent_id, message_id,
                        schedule_id, dedup_key, errors, state, finished_at)
                    SELECT g.id, g.queue, g.task, g.args, g.kwargs, g.headers,
                           g.priority, g.run_after, g.enqueued_at, g.expires_at,
                           g.attempt, g.max_attempts, g.crashes, g.deliveries, g.lane,
                           g.lane_capacity, g.lane_spacing, g.lane_burst,
                           g.lane_policy, g.progress, g.workflow_id, g.parent_id, g.message_id, g.schedule_id,
                           g.queued_key,
                           CASE WHEN jsonb_array_length(g.errors) >= 100
                                THEN g.errors - 1 ELSE g.errors END
                           || jsonb_build_object(
                               'kind', 'superseded', 'holder', out_holder,
                               'attempt', g.attempt, 'delivery', g.deliveries,
                               'at', statement_timestamp(),
                               'message', 'Job ' || out_holder || ' has its dedup key '
                                   'by now and does the work: this one ends here.'),
                           'cancelled', statement_timestamp()
                      FROM gone g;
                    IF FOUND THEN
                        out_outcome := 'superseded';
                    END IF;
                EXCEPTION
                    -- Somebody holds its row, or today has no partition: it runs again.
                    WHEN lock_not_available OR deadlock_detected OR check_violation THEN
                        NULL;
                END;
            END IF;
            EXIT;
        END LOOP;
        RETURN NEXT;
    END LOOP;
END $$;

-- enqueue.sql
CREATE OR REPLACE FUNCTION pgqueue_enqueue(
    task text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    priority integer DEFAULT 0,
    run_after timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT 5,
    dedup_key text DEFAULT NULL,
    headers jsonb DEFAULT '{}',
    lane text DEFAULT NULL,
    lane_capacity integer DEFAULT NULL,
    lane_spacing float8 DEFAULT NULL,
    lane_burst integer DEFAULT NULL,
    lane_policy text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    stored bigint;
BEGIN
    IF nullif($11, '') IS NULL THEN
        SELECT out_id INTO STRICT stored
          FROM pgqueue_store_unique(
               $4, $1, $2, $3, $10, $5, $8, $6, $7, clock_timestamp(), $9,
               CASE WHEN $9 IS NULL THEN NULL ELSE 'queued|running' END, 'skip',
               NULL, NULL, NULL, true);
        PERFORM pg_notify(pgqueue_channel(), $4);
        RETURN stored;
    END IF;
    IF $9 IS NOT NULL THEN
        RAISE 'pgqueue_enqueue() got the dedup_key % and the lane %: a job has one of '
            'them', $9, $11
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Leave the other one out.';
    END IF;
    INSERT INTO pgqueue_job (
        task, args, kwargs, queue, priority, run_after, expires_at, max_attempts,
        headers, lane, lane_capacity, lane_spacing, lane_burst, lane_policy)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $10, $11, $12, $13, $14, $15)
    RETURNING id INTO stored;
    PERFORM pg_notify(pgqueue_channel(), CASE WHEN $15 = 'fair' THEN '!fair:' || $4
                                              ELSE '!lanes' END);
    RETURN stored;
END $$;

-- turns.sql
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

-- pins.sql
DO $do$
DECLARE
    home regnamespace := (SELECT c.relnamespace FROM pg_catalog.pg_class c
                           WHERE c.oid = 'pgqueue_job'::regclass);
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid FROM pg_catalog.pg_proc p
         WHERE p.pronamespace = home AND p.proname IN (
               'pgqueue_begin_publish', 'pgqueue_channel', 'pgqueue_close_log_day',
               'pgqueue_dedup_key', 'pgqueue_enqueue', 'pgqueue_horizons',
               'pgqueue_installation', 'pgqueue_job_place', 'pgqueue_make_archive_day',
               'pgqueue_make_log_day', 'pgqueue_message_lane',
               'pgqueue_pattern_selects', 'pgqueue_patterns_of', 'pgqueue_promote',
               'pgqueue_publish', 'pgqueue_repeat_calls', 'pgqueue_retake_keys',
               'pgqueue_store', 'pgqueue_store_message', 'pgqueue_store_messages',
               'pgqueue_store_unique', 'pgqueue_turns')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
