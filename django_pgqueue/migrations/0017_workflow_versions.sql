-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- lock_workflows.sql
CREATE OR REPLACE FUNCTION pgqueue_lock_workflows(workflows bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    above bigint[] := workflows;
    every bigint[] := workflows;
BEGIN
    LOOP
        above := ARRAY(SELECT DISTINCT w.parent_id FROM pgqueue_workflow w
                        WHERE w.id = ANY(above) AND w.parent_id IS NOT NULL);
        EXIT WHEN cardinality(above) = 0;
        every := every || above;
    END LOOP;
    PERFORM FROM pgqueue_workflow w WHERE w.id = ANY(every)
      ORDER BY w.id FOR NO KEY UPDATE;
    RETURN every;
END $$;

-- batches_in.sql
CREATE OR REPLACE FUNCTION pgqueue_batches_in(workflow bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    below bigint[] := ARRAY[workflow];
    every bigint[] := ARRAY[workflow];
BEGIN
    LOOP
        below := ARRAY(SELECT w.id FROM pgqueue_workflow w
                        WHERE w.parent_id = ANY(below) ORDER BY w.id);
        EXIT WHEN cardinality(below) = 0;
        every := every || below;
    END LOOP;
    RETURN every;
END $$;

-- failure_of.sql
CREATE OR REPLACE FUNCTION pgqueue_failure_of(workflow bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
               'workflow', w.id, 'name', w.name, 'failed', w.dead + w.cancelled,
               'steps', coalesce((
                   SELECT jsonb_agg(jsonb_build_object(
                              'id', s.id, 'step', s.name, 'task', s.task,
                              'state', s.state, 'error', s.error) ORDER BY s.id)
                     FROM (SELECT * FROM pgqueue_step f
                            WHERE f.workflow_id = ANY(ARRAY(
                                  SELECT unnest(pgqueue_batches_in(w.id))))
                              AND f.kind = 'step'
                              AND f.state IN ('dead', 'cancelled', 'expired')
                              AND f.finished_at IS NOT NULL
                            ORDER BY f.id LIMIT 10) s), '[]'))
      FROM pgqueue_workflow w WHERE w.id = workflow
$$;

-- start_workflow.sql
CREATE OR REPLACE FUNCTION pgqueue_start_workflow(
    name text,
    key text,
    steps jsonb,
    ends integer[],
    is_list boolean,
    kind text,
    is_open boolean,
    deadline interval,
    version text DEFAULT NULL,
    parent bigint DEFAULT NULL,
    OUT workflow bigint,
    OUT first_id bigint,
    OUT is_new boolean,
    OUT refused text
) LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    IF parent IS NOT NULL THEN
        refused := CASE WHEN cardinality(pgqueue_lock_workflows(ARRAY[parent])) > 10
                        THEN 'deep' END;
        PERFORM FROM pgqueue_workflow w
          WHERE w.id = parent AND w.kind = 'batch' AND w.state = 'running'
            AND w.cancel_requested_at IS NULL;
        IF NOT FOUND THEN
            refused := 'ended';
        END IF;
        IF refused IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO pgqueue_workflow AS w (name, key, is_list, kind, is_open, deadline_at,
                                       version, parent_id, steps)
    VALUES ($1, $2, $5, $6, $7, clock_timestamp() + $8, $9, $10,
            (SELECT count(*) FROM jsonb_array_elements($3) s(step)
              WHERE s.step ->> 'kind' = 'step' AND s.step ? 'task'))
    ON CONFLICT ON CONSTRAINT pgqueue_workflow_key DO NOTHING
    RETURNING w.id INTO workflow;
    is_new := workflow IS NOT NULL;
    IF NOT is_new THEN
        SELECT w.id INTO STRICT workflow FROM pgqueue_workflow w
         WHERE w.name = $1 AND w.key = $2 AND w.kind = $6;
        RETURN;
    END IF;
    ids := ARRAY(SELECT nextval('pgqueue_job_id_seq')
                   FROM generate_series(1, jsonb_array_length($3)));
    first_id := ids[1];
    UPDATE pgqueue_workflow w
       SET ends = ARRAY(SELECT ids[e.place + 1]
                          FROM unnest($4) WITH ORDINALITY AS e(place, number)
                         ORDER BY e.number)
     WHERE w.id = workflow;
    PERFORM pgqueue_insert_steps(workflow, ids, $3);
    PERFORM pgqueue_advance(
        ARRAY[workflow], NULL,
        ARRAY(SELECT s.id FROM pgqueue_step s
               WHERE s.workflow_id = workflow AND s.waits = 0 AND s.kind = 'step'),
        false);
END $$;

-- add_steps.sql
CREATE OR REPLACE FUNCTION pgqueue_add_steps(workflow bigint, steps jsonb)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    PERFORM pgqueue_lock_workflows(ARRAY[$1]);
    PERFORM FROM pgqueue_workflow w
      WHERE w.id = $1 AND w.state = 'running' AND w.cancel_requested_at IS NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    ids := ARRAY(SELECT nextval('pgqueue_job_id_seq')
                   FROM generate_series(1, jsonb_array_length($2)));
    UPDATE pgqueue_workflow w
       SET steps = w.steps + (SELECT count(*) FROM jsonb_array_elements($2) s(step)
                               WHERE s.step ? 'task')
     WHERE w.id = $1;
    PERFORM pgqueue_insert_steps($1, ids, $2);
    PERFORM pgqueue_advance(
        ARRAY[$1], NULL,
        ARRAY(SELECT s.id FROM pgqueue_step s WHERE s.id = ANY(ids) AND s.waits = 0),
        false);
    RETURN ids[1];
END $$;

-- close_workflow.sql
CREATE OR REPLACE FUNCTION pgqueue_close_workflow(workflow bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pgqueue_lock_workflows(ARRAY[$1]);
    UPDATE pgqueue_workflow w SET is_open = false WHERE w.id = $1 AND w.is_open;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pgqueue_advance(ARRAY[$1], NULL, NULL, false);
    RETURN true;
END $$;

-- steps_ended.sql
CREATE OR REPLACE FUNCTION pgqueue_steps_ended(
    ended bigint[], acked bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    workflows bigint[];
    done bigint[];
BEGIN
    workflows := ARRAY(SELECT DISTINCT s.workflow_id FROM pgqueue_step s
                        WHERE s.id = ANY(ended));
    PERFORM pgqueue_lock_workflows(workflows);

    WITH found AS (
        SELECT asked.id, a.result,
               CASE WHEN a.id IS NOT NULL THEN a.state
                    WHEN d.id IS NOT NULL THEN 'dead'
                    WHEN asked.id = ANY(acked) THEN 'succeeded'
                    ELSE 'cancelled' END AS state,
               CASE WHEN d.id IS NOT NULL THEN jsonb_strip_nulls(jsonb_build_object(
                        'reason', d.reason, 'type', d.errors -> -1 -> 'type',
                        'message', left(d.errors -> -1 ->> 'message', 1000))) END
               AS error
          FROM unnest(ended) AS asked(id)
          LEFT JOIN pgqueue_dead_letter d ON d.id = asked.id AND d.id = ANY(ended)
          LEFT JOIN pgqueue_archived_job a
            ON a.id = asked.id AND a.id = ANY(ended)
           AND a.finished_at >= statement_timestamp() - interval '1 min'
           AND a.finished_at <= statement_timestamp()),
    changed AS (
        UPDATE pgqueue_step s
           SET state = found.state, result = found.result, error = found.error,
               finished_at = statement_timestamp()
          FROM found
         WHERE s.id = found.id AND s.id = ANY(ended) AND s.state = 'started'
        RETURNING s.id, s.workflow_id, s.kind, s.state),
    counted AS (
        UPDATE pgqueue_workflow w
           SET active = w.active - c.steps, succeeded = w.succeeded + c.succeeded,
               dead = w.dead + c.dead, cancelled = w.cancelled + c.cancelled
          FROM (SELECT workflow_id, count(*) AS steps,
                       count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
                       count(*) FILTER (WHERE state = 'dead') AS dead,
                       count(*) FILTER (WHERE state IN ('cancelled', 'expired'))
                       AS cancelled
                  FROM changed WHERE kind = 'step' GROUP BY workflow_id) c
         WHERE w.id = c.workflow_id AND w.id = ANY(workflows))
    SELECT array_agg(id) FILTER (WHERE state = 'succeeded' AND kind = 'step')
      INTO done FROM changed;
    PERFORM pgqueue_advance(workflows, done, NULL, true);
END $$;

-- letters_gone.sql
CREATE OR REPLACE FUNCTION pgqueue_letters_gone() RETURNS trigger LANGUAGE plpgsql
AS $$
DECLARE
    ended bigint[];
    workflows bigint[];
BEGIN
    SELECT array_agg(gone.id) INTO ended FROM gone WHERE gone.workflow_id IS NOT NULL;
    IF ended IS NULL THEN
        RETURN NULL;
    END IF;
    workflows := ARRAY(SELECT DISTINCT s.workflow_id FROM pgqueue_step s
                        WHERE s.id = ANY(ended) AND s.state = 'dead');
    PERFORM pgqueue_lock_workflows(workflows);
    WITH moved AS (
        UPDATE pgqueue_step s
           SET state = CASE WHEN j.id IS NULL THEN 'cancelled' ELSE 'started' END,
               finished_at = CASE WHEN j.id IS NULL THEN s.finished_at END,
               error = CASE WHEN j.id IS NULL THEN s.error END
          FROM unnest(ended) AS asked(id)
          LEFT JOIN pgqueue_job j ON j.id = asked.id AND j.id = ANY(ended)
         WHERE s.id = asked.id AND s.id = ANY(ended) AND s.state = 'dead'
           AND NOT (s.kind = 'step' AND s.workflow_id = ANY(ARRAY(
                   SELECT w.id FROM pgqueue_workflow w
                    WHERE w.id = ANY(workflows) AND w.kind = 'saga')))
           AND (j.id IS NOT NULL OR EXISTS (
                SELECT FROM pgqueue_archived_job a
                 WHERE a.id = asked.id AND a.id = ANY(ended)
                   AND a.finished_at >= statement_timestamp() - interval '1 min'
                   AND a.finished_at <= statement_timestamp()))
        RETURNING s.workflow_id, s.kind, s.state)
    UPDATE pgqueue_workflow w
       SET dead = w.dead - c.moved, active = w.active + c.started,
           cancelled = w.cancelled + c.moved - c.started,
           finished_at = CASE WHEN w.state = 'failed' AND c.started > 0 THEN NULL
                              ELSE w.finished_at END,
           deadline_at = CASE WHEN w.state = 'failed' AND c.started > 0
                                   AND w.deadline_at <= statement_timestamp()
                              THEN NULL ELSE w.deadline_at END,
           state = CASE WHEN w.state <> 'failed' THEN w.state
                        WHEN c.started > 0 THEN 'running'
                        WHEN w.dead = c.moved THEN 'cancelled' ELSE w.state END
      FROM (SELECT workflow_id, count(*) AS moved,
                   count(*) FILTER (WHERE state = 'started') AS started
              FROM moved WHERE kind = 'step' GROUP BY workflow_id) c
     WHERE w.id = c.workflow_id AND w.id = ANY(workflows);
    IF EXISTS (SELECT FROM pgqueue_step s
                WHERE s.id = ANY(ended) AND s.kind = 'compensation'
                  AND s.state = 'cancelled') THEN
        PERFORM pgqueue_compensate(workflows, true);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_letters_gone AFTER DELETE ON pgqueue_dead_letter
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_letters_gone();

-- batch_moved.sql
CREATE OR REPLACE FUNCTION pgqueue_batch_moved() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was pgqueue_workflow;
    more_cancelled integer;
    may_end boolean;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        was := OLD;
    ELSE
        SELECT 0, 0, 0, 0, 0, 0, now() INTO was.steps, was.active, was.succeeded,
               was.skipped, was.dead, was.cancelled, was.finished_at;
    END IF;
    more_cancelled := NEW.cancelled - was.cancelled
        + (NEW.state = 'cancelled' AND NEW.dead + NEW.cancelled = 0)::int
        - (was.state IS NOT DISTINCT FROM 'cancelled'
           AND was.dead + was.cancelled = 0)::int;
    -- By itself: whoever stores a batch need not be allowed to count what succeeds.
    IF NEW.succeeded <> was.succeeded OR more_cancelled <> 0 THEN
        UPDATE pgqueue_workflow p
           SET succeeded = p.succeeded + NEW.succeeded - was.succeeded,
               cancelled = p.cancelled + more_cancelled
         WHERE p.id = NEW.parent_id;
    END IF;
    UPDATE pgqueue_workflow p
       SET steps = p.steps + NEW.steps - was.steps,
           active = p.active + NEW.active - was.active
               + (NEW.finished_at IS NULL)::int - (was.finished_at IS NULL)::int,
           skipped = p.skipped + NEW.skipped - was.skipped,
           dead = p.dead + NEW.dead - was.dead,
           finished_at = CASE WHEN p.state = 'failed' AND NEW.finished_at IS NULL
                              THEN NULL ELSE p.finished_at END,
           state = CASE WHEN p.state <> 'failed' THEN p.state
                        WHEN NEW.finished_at IS NULL THEN 'running'
                        WHEN p.dead + NEW.dead = was.dead THEN 'cancelled'
                        ELSE p.state END
     WHERE p.id = NEW.parent_id
    RETURNING p.active = 0 AND p.state = 'running' INTO may_end;
    IF may_end THEN
        PERFORM pgqueue_advance(ARRAY[NEW.parent_id], NULL, NULL, true);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_batch_moved
    AFTER INSERT OR UPDATE OF steps, active, succeeded, skipped, dead, cancelled,
                              finished_at ON pgqueue_workflow
    FOR EACH ROW WHEN (NEW.parent_id IS NOT NULL)
    EXECUTE FUNCTION pgqueue_batch_moved();

-- watch.sql
CREATE OR REPLACE FUNCTION pgqueue_watch(
    in_waits interval DEFAULT '5 min',
    in_lapsed interval DEFAULT '1 min',
    in_fresh interval DEFAULT '15 min',
    in_kept interval DEFAULT '7 days',
    in_limit integer DEFAULT 20
) RETURNS TABLE (
    kind text, subject text, change text, count integer, detail text, since timestamptz
) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
    said record;
    more integer := 0;
    spoken integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(706708, 'pgqueue_job'::regclass::oid::integer) THEN
        RETURN;
    END IF;
    moment := clock_timestamp();
    FOR said IN
    WITH RECURSIVE band(queue, priority) AS (
        (SELECT j.queue, j.priority FROM pgqueue_job j
          ORDER BY j.queue, j.priority DESC LIMIT 1)
        UNION ALL
        SELECT next.queue, next.priority FROM band CROSS JOIN LATERAL (
              (SELECT j.queue, j.priority FROM pgqueue_job j
                WHERE j.queue = band.queue AND j.priority < band.priority
                ORDER BY j.queue, j.priority DESC LIMIT 1)
               UNION ALL
              (SELECT j.queue, j.priority FROM pgqueue_job j
                WHERE j.queue > band.queue
                ORDER BY j.queue, j.priority DESC LIMIT 1)
               LIMIT 1) next),
    due AS MATERIALIZED (
        SELECT old.queue, old.leased_by IS NOT NULL AS is_leased,
               moment - old.visible_at AS age
          FROM band
         CROSS JOIN LATERAL (
               SELECT j.queue, j.task, j.leased_by, j.visible_at FROM pgqueue_job j
                WHERE j.queue = band.queue AND j.priority = band.priority
                  AND j.visible_at <= moment - least(in_lapsed, in_waits)
                ORDER BY j.visible_at LIMIT 100) old
         WHERE NOT EXISTS (
               SELECT FROM pgqueue_queue q
                WHERE q.name = old.queue AND q.paused_at IS NOT NULL
                  AND coalesce(q.paused_until > moment, true))
           AND NOT EXISTS (
               SELECT FROM pgqueue_lane l
                WHERE l.name = old.task AND l.paused_at IS NOT NULL
                  AND coalesce(l.paused_until > moment, true))),
    live AS MATERIALIZED (
        SELECT w.queues FROM pgqueue_worker w
         WHERE w.heartbeat_at > moment - interval '1 min'),
    dead AS MATERIALIZED (
        SELECT d.task, d.reason, d.finished_at,
               coalesce(d.errors -> -1 ->> 'type', d.errors -> -1 ->> 'kind') AS class
          FROM pgqueue_dead_letter d
         WHERE d.finished_at > moment - in_fresh
         ORDER BY d.finished_at DESC LIMIT 1000),
    found(kind, subject, count, detail) AS MATERIALIZED (
        SELECT 'lapsed_leases', d.queue, count(*)::integer,
               format('leases of %s jobs ran out, and nobody has taken these; the first '
                      '%s ago', count(*), date_trunc('second', max(d.age)))
          FROM due d WHERE d.is_leased AND d.age > in_lapsed GROUP BY d.queue
        UNION ALL
        SELECT 'unclaimed_jobs', d.queue, count(*)::integer,
               format('%s jobs have been due for more than %s, the first for %s; %s '
                      'living workers serve the queue', count(*), in_waits,
                      date_trunc('second', max(d.age)),
                      (SELECT count(*) FROM live
                        WHERE live.queues = '[]' OR live.queues ? d.queue))
          FROM due d WHERE NOT d.is_leased AND d.age > in_waits GROUP BY d.queue
        UNION ALL
        SELECT 'new_dead_letters', d.task, count(*)::integer,
               format('%s jobs gave up within %s, the last as %s%s', count(*), in_fresh,
                      (array_agg(d.reason ORDER BY d.finished_at DESC))[1],
                      coalesce(': ' || (array_agg(d.class ORDER BY d.finished_at DESC))[1],
                               ''))
          FROM dead d GROUP BY d.task
        UNION ALL
       (SELECT 'silent_schedules', s.name, 1,
               CASE WHEN s.error IS NOT NULL THEN 'its ticks cannot be issued'
                    ELSE format('a tick has been due since %s, and no worker has issued '
                                'it', s.next_tick) END
          FROM pgqueue_schedule s
         WHERE s.paused_at IS NULL AND s.withdrawn_at IS NULL
           AND (s.error IS NOT NULL OR s.next_tick < moment - in_lapsed)
         ORDER BY s.name LIMIT 100)
        UNION ALL
        SELECT 'halted_groups', left(g.topic || '/' || g.name, 275), count(*)::integer,
               format('%s partitions have halted (%s), the first since %s', count(*),
                      string_agg(DISTINCT p.halted_for, ', '), min(p.halted_at))
          FROM pgqueue_consumer_group g JOIN pgqueue_position p ON p.group_id = g.id
         WHERE p.halted_at IS NOT NULL GROUP BY g.topic, g.name
        UNION ALL
        SELECT 'stuck_sagas', w.name, count(*)::integer,
               format('%s sagas do not get on with undoing, since a compensation is '
                      'dead; the first is saga %s', count(*), min(w.id))
          FROM (SELECT w.id, w.name FROM pgqueue_workflow w
                 WHERE w.state = 'compensating' ORDER BY w.id LIMIT 1000) w
         CROSS JOIN LATERAL (
               SELECT FROM pgqueue_step s
                WHERE s.workflow_id BETWEEN w.id AND w.id AND s.kind = 'compensation'
                  AND s.state = 'dead'
                ORDER BY s.workflow_id, s.id LIMIT 1) s
         GROUP BY w.name),
    standing AS (
        INSERT INTO pgqueue_alert AS a
               (name, kind, subject, count, detail, began_at, said_at, said_count)
        SELECT f.kind || ':' || f.subject, f.kind, f.subject, f.count, f.detail, moment,
               moment, f.count
          FROM found f ORDER BY 1
        ON CONFLICT (name) DO UPDATE
           SET count = EXCLUDED.count, detail = EXCLUDED.detail, ended_at = NULL,
               began_at = CASE WHEN a.ended_at IS NULL THEN a.began_at
                               ELSE moment END,
               said_at = CASE WHEN a.ended_at IS NULL
                                   AND EXCLUDED.count < a.said_count * 10
                              THEN a.said_at ELSE moment END,
               said_count = CASE WHEN a.ended_at IS NULL
                                      AND EXCLUDED.count < a.said_count * 10
                                 THEN a.said_count ELSE EXCLUDED.count END
        RETURNING a.kind, a.subject, a.count, a.detail, a.began_at, a.said_at),
    over AS (
        UPDATE pgqueue_alert a SET ended_at = moment, said_at = moment
         WHERE a.ended_at IS NULL
           AND a.name <> ALL(ARRAY(SELECT f.kind || ':' || f.subject FROM found f))
        RETURNING a.kind, a.subject, a.count, a.detail, a.began_at),
    forgotten AS (
        DELETE FROM pgqueue_alert a
         WHERE a.name = ANY(ARRAY(
               SELECT old.name FROM pgqueue_alert old
                WHERE old.said_at < moment - in_kept AND old.ended_at IS NOT NULL
                ORDER BY old.said_at LIMIT 1000))
           AND a.name <> ALL(ARRAY(SELECT f.kind || ':' || f.subject FROM found f)))
    SELECT s.kind, s.subject, s.count, s.detail, s.began_at,
           CASE WHEN s.began_at = moment THEN 'begins' ELSE 'grows' END AS change
      FROM standing s WHERE s.said_at = moment
    UNION ALL
    SELECT o.kind, o.subject, o.count, o.detail, o.began_at, 'ends' FROM over o
     ORDER BY 6, 1, 2
    LOOP
        spoken := spoken + 1;
        IF spoken > in_limit THEN
            more := more + 1;
        ELSIF said.change = 'ends' THEN
            RAISE LOG 'pgqueue: % of % is over, after %', said.kind, said.subject,
                date_trunc('second', moment - said.began_at);
        ELSE
            RAISE WARNING 'pgqueue: % of %: %', said.kind, said.subject, said.detail;
        END IF;
        kind := said.kind;
        subject := said.subject;
        change := said.change;
        count := said.count;
        detail := said.detail;
        since := said.began_at;
        RETURN NEXT;
    END LOOP;
    IF more > 0 THEN
        RAISE WARNING 'pgqueue: % more alerts have changed: see pgqueue_alert', more;
    END IF;
    IF spoken > 0 THEN
        PERFORM pg_notify(pgqueue_channel(), '!alert');
    END IF;
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
               'pgqueue_add_steps', 'pgqueue_advance', 'pgqueue_batch_moved',
               'pgqueue_batches_in', 'pgqueue_begin_publish',
               'pgqueue_channel', 'pgqueue_close_log_day', 'pgqueue_close_workflow',
               'pgqueue_compensate', 'pgqueue_dedup_key', 'pgqueue_enqueue',
               'pgqueue_failure_of', 'pgqueue_horizons', 'pgqueue_insert_steps',
               'pgqueue_installation', 'pgqueue_job_place', 'pgqueue_jobs_gone',
               'pgqueue_letters_gone', 'pgqueue_lock_workflows',
               'pgqueue_make_archive_day',
               'pgqueue_make_log_day', 'pgqueue_meets', 'pgqueue_message_lane',
               'pgqueue_pattern_selects', 'pgqueue_patterns_of', 'pgqueue_promote',
               'pgqueue_publish', 'pgqueue_repeat_calls', 'pgqueue_restart_workflow',
               'pgqueue_results_of', 'pgqueue_retake_keys', 'pgqueue_start_steps',
               'pgqueue_start_workflow', 'pgqueue_steps_ended', 'pgqueue_store',
               'pgqueue_store_message', 'pgqueue_store_messages', 'pgqueue_store_steps',
               'pgqueue_store_unique', 'pgqueue_turns', 'pgqueue_watch')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
