-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- results_of.sql
CREATE OR REPLACE FUNCTION pgqueue_results_of(steps bigint[]) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN (
        SELECT coalesce(sum(octet_length(s.result::text)), 0) <= 50000000
          FROM pgqueue_step s WHERE s.id = ANY(steps))
    THEN (
        SELECT coalesce(jsonb_agg(coalesce(s.result, 'null') ORDER BY asked.place), '[]')
          FROM unnest(steps) WITH ORDINALITY AS asked(id, place)
          JOIN pgqueue_step s ON s.id = asked.id AND s.id = ANY(steps)) END
$$;

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
                            WHERE f.workflow_id = w.id AND f.kind = 'step'
                              AND f.state IN ('dead', 'cancelled', 'expired')
                              AND f.finished_at IS NOT NULL
                            ORDER BY f.id LIMIT 10) s), '[]'))
      FROM pgqueue_workflow w WHERE w.id = workflow
$$;

-- meets.sql
CREATE OR REPLACE FUNCTION pgqueue_meets(condition jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(bool_and(
        CASE c.op
        WHEN '==' THEN found.value = c.value
        WHEN '!=' THEN found.value <> c.value
        WHEN 'in' THEN EXISTS (SELECT FROM jsonb_array_elements(c.value) AS one(value)
                                WHERE one.value = found.value)
        ELSE jsonb_typeof(found.value) = jsonb_typeof(c.value)
             AND CASE c.op
                 WHEN '<' THEN found.value < c.value
                 WHEN '<=' THEN found.value <= c.value
                 WHEN '>' THEN found.value > c.value
                 WHEN '>=' THEN found.value >= c.value END
        END), true)
      FROM jsonb_array_elements(condition) AS said(comparison)
     CROSS JOIN LATERAL (
           SELECT (comparison ->> 'step')::bigint,
                  ARRAY(SELECT jsonb_array_elements_text(comparison -> 'path')),
                  comparison ->> 'op', comparison -> 'value') AS c(step, path, op, value)
     CROSS JOIN LATERAL (
           SELECT coalesce((SELECT s.result #> c.path FROM pgqueue_step s
                             WHERE s.id = c.step), 'null')) AS found(value)
$$;

-- store_steps.sql
CREATE OR REPLACE FUNCTION pgqueue_store_steps(
    ready bigint[], notifies boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    too_large text;
    hint text;
BEGIN
    WITH given AS MATERIALIZED (
        SELECT s.id, s.workflow_id, s.name, s.task, s.job, s.takes, s.fills,
               CASE s.takes
               WHEN 'result' THEN
                   (SELECT coalesce(p.result, 'null') FROM pgqueue_step p
                     WHERE p.id = s.after[1])
               WHEN 'results' THEN pgqueue_results_of(s.after)
               WHEN 'failure' THEN pgqueue_failure_of(s.workflow_id)
               END AS value
          FROM pgqueue_step s WHERE s.id = ANY(ready)),
    made AS MATERIALIZED (
        SELECT g.id, g.workflow_id, g.name, g.task, j.queue,
               CASE WHEN g.value IS NOT NULL THEN jsonb_set(j.args, '{0}', g.value)
                    WHEN g.fills IS NOT NULL THEN (
                        SELECT coalesce(jsonb_agg(
                                   CASE WHEN f.step IS NULL THEN a.value
                                        ELSE coalesce((
                                            SELECT p.result FROM pgqueue_step p
                                             WHERE p.id = f.step), 'null') END
                                   ORDER BY a.place), '[]')
                          FROM jsonb_array_elements(j.args) WITH ORDINALITY
                               AS a(value, place)
                          LEFT JOIN jsonb_to_recordset(g.fills)
                               AS f("to" jsonb, step bigint)
                               ON f."to" = to_jsonb(a.place - 1))
                    ELSE j.args END AS args,
               CASE WHEN g.fills IS NULL THEN j.kwargs
                    ELSE j.kwargs || (
                        SELECT coalesce(jsonb_object_agg(
                                   f."to" #>> '{}', coalesce((
                                       SELECT p.result FROM pgqueue_step p
                                        WHERE p.id = f.step), 'null')), '{}')
                          FROM jsonb_to_recordset(g.fills) AS f("to" jsonb, step bigint)
                         WHERE jsonb_typeof(f."to") = 'string') END AS kwargs,
               j.headers, j.priority, j.max_attempts,
               coalesce(j.run_at, clock_timestamp() + j.delay) AS run_after,
               coalesce(j.expire_at, clock_timestamp() + j.expire_in) AS expires_at,
               j.lane, j.lane_capacity, j.lane_spacing, j.lane_burst, j.lane_policy,
               j.bytes_max,
               g.takes IS DISTINCT FROM 'results' OR g.value IS NOT NULL AS is_given
          FROM given g, jsonb_to_record(g.job) AS j(
               queue text, args jsonb, kwargs jsonb, headers jsonb, priority smallint,
               max_attempts smallint, run_at timestamptz, delay interval,
               expire_at timestamptz, expire_in interval, lane text,
               lane_capacity integer, lane_spacing float8, lane_burst integer,
               lane_policy text, bytes_max bigint)),
    stored AS (
        INSERT INTO pgqueue_job (
            id, workflow_id, task, queue, args, kwargs, headers, priority, max_attempts,
            run_after, expires_at, lane, lane_capacity, lane_spacing, lane_burst,
            lane_policy, promotion)
        SELECT id, workflow_id, task, queue, args, kwargs, headers, priority,
               max_attempts, run_after, expires_at, lane, lane_capacity, lane_spacing,
               lane_burst, lane_policy, CASE WHEN lane IS NOT NULL THEN 0 END
          FROM made ORDER BY id),
    started AS (
        UPDATE pgqueue_step s
           SET state = 'started', started_at = statement_timestamp(),
               finished_at = NULL, error = NULL
         WHERE s.id = ANY(ready) RETURNING s.workflow_id, s.kind),
    counted AS (
        UPDATE pgqueue_workflow w SET active = w.active + c.steps
          FROM (SELECT workflow_id, count(*) AS steps FROM started
                 WHERE kind = 'step' GROUP BY workflow_id) c
         WHERE w.id = c.workflow_id
           AND w.id = ANY(ARRAY(SELECT workflow_id FROM started)))
    SELECT CASE WHEN bytes IS NULL
                THEN format('step %s takes results of more than 50,000,000 bytes', name)
                ELSE format('step %s has arguments of %s bytes; the limit is %s', name,
                            bytes, bytes_max) END
      INTO too_large
      FROM (SELECT name, bytes_max, CASE WHEN is_given THEN
                   octet_length(args::text) + octet_length(kwargs::text) END AS bytes
              FROM made) m
     WHERE bytes > bytes_max OR bytes IS NULL LIMIT 1;
    IF too_large IS NOT NULL THEN
        RAISE '% (PAYLOAD_BYTES_MAX)', too_large
            USING ERRCODE = 'program_limit_exceeded';
    END IF;

    IF NOT notifies THEN
        RETURN;
    END IF;
    FOR hint IN
        SELECT DISTINCT CASE WHEN s.job ->> 'lane' IS NULL THEN s.job ->> 'queue'
                             WHEN s.job ->> 'lane_policy' = 'fair'
                             THEN '!fair:' || (s.job ->> 'queue')
                             ELSE '!lanes' END
          FROM pgqueue_step s WHERE s.id = ANY(ready)
    LOOP
        PERFORM pg_notify(pgqueue_channel(), hint);
    END LOOP;
END $$;

-- start_steps.sql
CREATE OR REPLACE FUNCTION pgqueue_start_steps(
    ready bigint[], notifies boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one bigint;
    problem text;
BEGIN
    BEGIN
        PERFORM pgqueue_store_steps(ready, notifies);
        RETURN;
    EXCEPTION
        WHEN data_exception OR integrity_constraint_violation
            OR program_limit_exceeded THEN
        NULL; -- One by one.
    END;
    FOREACH one IN ARRAY ready LOOP
        BEGIN
            PERFORM pgqueue_store_steps(ARRAY[one], notifies);
        EXCEPTION
            WHEN data_exception OR integrity_constraint_violation
                OR program_limit_exceeded THEN
            GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT;
            UPDATE pgqueue_step s
               SET state = 'dead', finished_at = statement_timestamp(),
                   error = jsonb_build_object(
                       'reason', 'unstorable',
                       'message', 'Its job could not be stored: ' || problem)
             WHERE s.id = one;
            UPDATE pgqueue_workflow w SET dead = w.dead + 1
              FROM pgqueue_step s
             WHERE s.id = one AND w.id = s.workflow_id AND s.kind = 'step';
        END;
    END LOOP;
END $$;

-- compensate.sql
CREATE OR REPLACE FUNCTION pgqueue_compensate(
    workflows bigint[], notifies boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    undoing bigint[];
    ready bigint[];
BEGIN
    SELECT array_agg(w.id) INTO undoing FROM pgqueue_workflow w
     WHERE w.id = ANY(workflows) AND w.state = 'compensating'
       AND NOT EXISTS (
           SELECT FROM pgqueue_step c
            WHERE c.workflow_id = w.id AND c.workflow_id = ANY(workflows)
              AND c.kind = 'compensation' AND c.state IN ('started', 'dead'));

    WITH gone AS (
        DELETE FROM pgqueue_dead_letter d
         WHERE d.id = ANY(ARRAY(
               SELECT s.id FROM pgqueue_step s
                WHERE s.workflow_id = ANY(undoing) AND s.kind = 'step'
                  AND s.state = 'dead'))
        RETURNING d.*)
    INSERT INTO pgqueue_archived_job (
        id, queue, task, args, kwargs, headers, priority, run_after, enqueued_at,
        expires_at, attempt, max_attempts, crashes, deliveries, dedup_key,
        accumulate_key, lane, lane_capacity, lane_spacing, lane_burst, lane_policy,
        progress, workflow_id, parent_id, message_id, schedule_id, errors, state,
        started_at, finished_at, worker)
    SELECT id, queue, task, args, kwargs, headers, priority, run_after, enqueued_at,
           expires_at, attempt, max_attempts, crashes, deliveries, dedup_key,
           accumulate_key, lane, lane_capacity, lane_spacing, lane_burst, lane_policy,
           progress, workflow_id, parent_id, message_id, schedule_id,
           CASE WHEN jsonb_array_length(errors) >= 100 THEN errors - 1
                ELSE errors END
           || jsonb_build_object(
                  'kind', 'set_aside', 'by', 'saga ' || workflow_id,
                  'at', statement_timestamp(), 'dead_for', reason,
                  'message', 'The saga compensates.'),
           'cancelled', started_at, statement_timestamp(), worker
      FROM gone;

    SELECT array_agg(next.id) INTO ready FROM (
        SELECT DISTINCT ON (c.workflow_id) c.id
          FROM pgqueue_step c
         WHERE c.workflow_id = ANY(undoing) AND c.kind = 'compensation'
           AND c.state = 'waiting'
           AND (SELECT s.state FROM pgqueue_step s
                 WHERE s.id = c.compensates) = 'succeeded'
         ORDER BY c.workflow_id, c.compensates DESC) next;
    IF ready IS NOT NULL THEN
        PERFORM pgqueue_start_steps(ready, notifies);
    END IF;

    WITH ended AS (
        UPDATE pgqueue_workflow w
           SET state = 'compensated', finished_at = statement_timestamp()
         WHERE w.id = ANY(undoing)
           AND NOT EXISTS (SELECT FROM pgqueue_step c
                            WHERE c.id = ANY(ready) AND c.workflow_id = w.id)
        RETURNING w.id,
                  w.cancel_requested_at IS NOT NULL AND NOT w.is_overdue AS is_asked)
    SELECT array_agg(s.id) INTO ready
      FROM ended e JOIN pgqueue_step s ON s.workflow_id = e.id
     WHERE s.workflow_id = ANY(undoing) AND NOT e.is_asked AND s.kind = 'on_error'
       AND s.state = 'waiting';
    IF ready IS NOT NULL THEN
        PERFORM pgqueue_start_steps(ready, notifies);
    END IF;
END $$;

-- advance.sql
CREATE OR REPLACE FUNCTION pgqueue_advance(
    workflows bigint[], done bigint[], ready bigint[], notifies boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    tasks bigint[];
    gathers bigint[];
    left_out bigint[];
    callbacks bigint[];
BEGIN
    LOOP
        SELECT array_agg(r.id) FILTER (WHERE r.is_met AND r.is_task),
               array_agg(r.id) FILTER (WHERE r.is_met AND NOT r.is_task),
               array_agg(r.id) FILTER (WHERE NOT r.is_met)
          INTO tasks, gathers, left_out
          FROM (SELECT s.id, s.task IS NOT NULL AS is_task,
                       s.condition IS NULL OR pgqueue_meets(s.condition) AS is_met
                  FROM pgqueue_step s JOIN pgqueue_workflow w ON w.id = s.workflow_id
                 WHERE s.id = ANY(ready) AND s.state = 'waiting'
                   AND w.id = ANY(workflows)
                   AND w.state = 'running' AND w.cancel_requested_at IS NULL
                   AND (w.kind <> 'saga' OR w.dead + w.cancelled = 0)) r;
        IF tasks IS NOT NULL THEN
            PERFORM pgqueue_start_steps(tasks, notifies);
        END IF;
        IF gathers IS NOT NULL THEN
            WITH asked AS MATERIALIZED (
                SELECT s.id, CASE WHEN s.takes IS NULL THEN '[]'
                                  ELSE pgqueue_results_of(s.after) END AS results
                  FROM pgqueue_step s WHERE s.id = ANY(gathers)),
            gathered AS (
                UPDATE pgqueue_step s
                   SET state = CASE WHEN asked.results IS NULL THEN 'dead'
                                    ELSE 'succeeded' END,
                       result = asked.results, started_at = statement_timestamp(),
                       finished_at = statement_timestamp(),
                       error = CASE WHEN asked.results IS NULL THEN jsonb_build_object(
                           'reason', 'unstorable', 'message',
                           'The results before it have more than 50,000,000 bytes.')
                           END
                  FROM asked WHERE s.id = asked.id
                RETURNING s.id, s.workflow_id, s.state),
            counted AS (
                UPDATE pgqueue_workflow w SET dead = w.dead + c.steps
                  FROM (SELECT workflow_id, count(*) AS steps FROM gathered
                         WHERE state = 'dead' GROUP BY workflow_id) c
                 WHERE w.id = c.workflow_id)
            SELECT done || array_agg(id) FILTER (WHERE state = 'succeeded')
              INTO done FROM gathered;
        END IF;
        IF left_out IS NOT NULL THEN
            WITH passed_over AS (
                UPDATE pgqueue_step s
                   SET state = 'skipped', finished_at = statement_timestamp()
                 WHERE s.id = ANY(left_out) RETURNING s.workflow_id, s.task)
            UPDATE pgqueue_workflow w SET skipped = w.skipped + c.steps
              FROM (SELECT workflow_id, count(task) AS steps FROM passed_over
                     GROUP BY workflow_id) c
             WHERE w.id = c.workflow_id AND w.id = ANY(workflows);
            done := done || left_out;
        END IF;
        EXIT WHEN done IS NULL;
        WITH met AS (
            SELECT n.id, count(*) AS steps
              FROM pgqueue_step s CROSS JOIN LATERAL unnest(s.next) AS n(id)
             WHERE s.id = ANY(done) GROUP BY n.id),
        nearer AS (
            UPDATE pgqueue_step s SET waits = s.waits - met.steps
              FROM met
             WHERE s.id = met.id AND s.id = ANY(ARRAY(SELECT id FROM met))
            RETURNING s.id, s.waits)
        SELECT array_agg(id) FILTER (WHERE waits = 0) INTO ready FROM nearer;
        done := NULL;
        EXIT WHEN ready IS NULL;
    END LOOP;

    WITH ended AS (
        UPDATE pgqueue_workflow w
           SET state = CASE
                   WHEN w.dead + w.cancelled = 0 AND w.cancel_requested_at IS NULL
                   THEN 'succeeded'
                   WHEN w.kind = 'saga' THEN 'compensating'
                   WHEN w.dead > 0 THEN 'failed' ELSE 'cancelled' END,
               finished_at = CASE
                   WHEN w.kind = 'saga' AND (w.dead + w.cancelled > 0
                                             OR w.cancel_requested_at IS NOT NULL)
                   THEN NULL ELSE statement_timestamp() END
         WHERE w.id = ANY(workflows) AND w.active = 0 AND w.state = 'running'
           AND (NOT w.is_open OR w.cancel_requested_at IS NOT NULL)
        RETURNING w.id, w.state,
                  w.cancel_requested_at IS NOT NULL AND NOT w.is_overdue AS is_asked)
    SELECT array_agg(s.id) INTO callbacks
      FROM ended e JOIN pgqueue_step s ON s.workflow_id = e.id
     WHERE s.workflow_id = ANY(workflows) AND s.state = 'waiting' AND CASE s.kind
           WHEN 'on_success' THEN e.state = 'succeeded'
           WHEN 'on_error' THEN e.state IN ('failed', 'cancelled')
                                AND NOT e.is_asked
           WHEN 'on_complete' THEN e.state <> 'compensating' END;
    IF callbacks IS NOT NULL THEN
        PERFORM pgqueue_start_steps(callbacks, notifies);
    END IF;
    IF EXISTS (SELECT FROM pgqueue_workflow w
                WHERE w.id = ANY(workflows) AND w.state = 'compensating') THEN
        PERFORM pgqueue_compensate(workflows, notifies);
    END IF;
END $$;

-- insert_steps.sql
CREATE OR REPLACE FUNCTION pgqueue_insert_steps(
    workflow bigint, ids bigint[], steps jsonb
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pgqueue_step (id, workflow_id, name, kind, task, job, after, next, waits,
                              takes, fills, condition, compensates, state)
    SELECT ids[s.place], $1, j.name, j.kind, j.task, j.job,
           ARRAY(SELECT ids[a.value::int + 1]
                   FROM jsonb_array_elements_text(j.after) WITH ORDINALITY a(value, n)
                  ORDER BY a.n),
           ARRAY(SELECT ids[a.value::int + 1]
                   FROM jsonb_array_elements_text(j.next) WITH ORDINALITY a(value, n)
                  ORDER BY a.n),
           jsonb_array_length(j.after), j.takes,
           (SELECT jsonb_agg(f.value || jsonb_build_object(
                                 'step', ids[(f.value ->> 'step')::int + 1]))
              FROM jsonb_array_elements(j.fills) f(value)),
           (SELECT jsonb_agg(c.value || jsonb_build_object(
                                 'step', ids[(c.value ->> 'step')::int + 1]))
              FROM jsonb_array_elements(j.condition) c(value)),
           ids[j.compensates + 1], 'waiting'
      FROM jsonb_array_elements($3) WITH ORDINALITY AS s(step, place),
           jsonb_to_record(s.step) AS j(
               name text, kind text, task text, job jsonb, after jsonb, next jsonb,
               takes text, fills jsonb, condition jsonb, compensates integer)
     ORDER BY s.place;
END $$;

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
    OUT workflow bigint,
    OUT first_id bigint,
    OUT is_new boolean
) LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    INSERT INTO pgqueue_workflow AS w (name, key, is_list, kind, is_open, deadline_at,
                                       steps)
    VALUES ($1, $2, $5, $6, $7, clock_timestamp() + $8,
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
    PERFORM FROM pgqueue_workflow w
      WHERE w.id = $1 AND w.state = 'running' AND w.cancel_requested_at IS NULL
        FOR NO KEY UPDATE;
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
    UPDATE pgqueue_workflow w SET is_open = false WHERE w.id = $1 AND w.is_open;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pgqueue_advance(ARRAY[$1], NULL, NULL, false);
    RETURN true;
END $$;

-- restart_workflow.sql
CREATE OR REPLACE FUNCTION pgqueue_restart_workflow(workflow bigint, step bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    old pgqueue_workflow;
    anew bigint;
    again bigint[];
    ids jsonb;
BEGIN
    SELECT * INTO old FROM pgqueue_workflow w
     WHERE w.id = $1 AND w.state IN ('succeeded', 'failed', 'cancelled')
       AND w.kind IN ('canvas', 'flow')
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    again := ARRAY(
        WITH RECURSIVE after AS (
            SELECT s.id FROM pgqueue_step s WHERE s.workflow_id = $1 AND s.id = $2
            UNION
            SELECT n.id FROM after a JOIN pgqueue_step s ON s.id = a.id
             CROSS JOIN LATERAL unnest(s.next) AS n(id))
        SELECT id FROM after);
    UPDATE pgqueue_workflow w SET key = NULL WHERE w.id = $1;
    INSERT INTO pgqueue_workflow AS w (name, key, kind, is_list, steps, restarted_from)
    VALUES (old.name, old.key, old.kind, old.is_list, old.steps, $1)
    RETURNING w.id INTO anew;
    SELECT jsonb_object_agg(s.id, nextval('pgqueue_job_id_seq') ORDER BY s.id) INTO ids
      FROM (SELECT o.id FROM pgqueue_step o WHERE o.workflow_id = $1
             ORDER BY o.id) s;
    INSERT INTO pgqueue_step (id, workflow_id, name, kind, task, job, after, next, waits,
                              takes, fills, condition, state, result, started_at,
                              finished_at)
    SELECT (ids ->> s.id::text)::bigint, anew, s.name, s.kind, s.task, s.job,
           ARRAY(SELECT (ids ->> a.id::text)::bigint
                   FROM unnest(s.after) WITH ORDINALITY a(id, place)
                  ORDER BY a.place),
           ARRAY(SELECT (ids ->> a.id::text)::bigint
                   FROM unnest(s.next) WITH ORDINALITY a(id, place) ORDER BY a.place),
           (SELECT count(*) FROM pgqueue_step b
             WHERE b.id = ANY(s.after)
               AND (b.state NOT IN ('succeeded', 'skipped') OR b.id = ANY(again))),
           s.takes,
           (SELECT jsonb_agg(f.value || jsonb_build_object(
                                 'step', (ids ->> (f.value ->> 'step'))::bigint))
              FROM jsonb_array_elements(s.fills) f(value)),
           (SELECT jsonb_agg(c.value || jsonb_build_object(
                                 'step', (ids ->> (c.value ->> 'step'))::bigint))
              FROM jsonb_array_elements(s.condition) c(value)),
           CASE WHEN kept.is_so THEN s.state ELSE 'waiting' END,
           CASE WHEN kept.is_so THEN s.result END,
           CASE WHEN kept.is_so THEN s.started_at END,
           CASE WHEN kept.is_so THEN s.finished_at END
      FROM pgqueue_step s
     CROSS JOIN LATERAL (
           SELECT s.kind = 'step' AND s.state IN ('succeeded', 'skipped')
                  AND NOT s.id = ANY(again)) AS kept(is_so)
     WHERE s.workflow_id = $1;
    UPDATE pgqueue_workflow w
       SET ends = ARRAY(SELECT (ids ->> e.id::text)::bigint
                          FROM unnest(old.ends) WITH ORDINALITY e(id, place)
                         ORDER BY e.place),
           succeeded = c.succeeded, skipped = c.skipped
      FROM (SELECT count(s.task) FILTER (WHERE s.state = 'succeeded') AS succeeded,
                   count(s.task) FILTER (WHERE s.state = 'skipped') AS skipped
              FROM pgqueue_step s WHERE s.workflow_id = anew AND s.kind = 'step') c
     WHERE w.id = anew;
    PERFORM pgqueue_advance(
        ARRAY[anew], NULL,
        ARRAY(SELECT s.id FROM pgqueue_step s
               WHERE s.workflow_id = anew AND s.waits = 0 AND s.kind = 'step'
                 AND s.state = 'waiting'),
        true);
    RETURN anew;
END $$;

-- steps_ended.sql
CREATE OR REPLACE FUNCTION pgqueue_steps_ended(
    ended bigint[], acked bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    workflows bigint[];
    done bigint[];
BEGIN
    SELECT array_agg(locked.id) INTO workflows FROM (
        SELECT w.id FROM pgqueue_workflow w
         WHERE w.id = ANY(ARRAY(SELECT s.workflow_id FROM pgqueue_step s
                                 WHERE s.id = ANY(ended)))
         ORDER BY w.id FOR NO KEY UPDATE) locked;

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

-- jobs_gone.sql
CREATE OR REPLACE FUNCTION pgqueue_jobs_gone() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ended bigint[];
    acked bigint[];
BEGIN
    SELECT array_agg(gone.id),
           array_agg(gone.id) FILTER (WHERE gone.leased_by IS NOT NULL)
      INTO ended, acked FROM gone WHERE gone.workflow_id IS NOT NULL;
    IF ended IS NOT NULL THEN
        PERFORM pgqueue_steps_ended(ended, acked);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_jobs_gone AFTER DELETE ON pgqueue_job
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_jobs_gone();

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
    SELECT array_agg(locked.id) INTO workflows FROM (
        SELECT w.id FROM pgqueue_workflow w
         WHERE w.id = ANY(ARRAY(SELECT s.workflow_id FROM pgqueue_step s
                                 WHERE s.id = ANY(ended)
                                   AND s.state = 'dead'))
         ORDER BY w.id FOR NO KEY UPDATE) locked;
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
               'pgqueue_add_steps', 'pgqueue_advance', 'pgqueue_begin_publish',
               'pgqueue_channel', 'pgqueue_close_log_day', 'pgqueue_close_workflow',
               'pgqueue_compensate', 'pgqueue_dedup_key', 'pgqueue_enqueue',
               'pgqueue_failure_of', 'pgqueue_horizons', 'pgqueue_insert_steps',
               'pgqueue_installation', 'pgqueue_job_place', 'pgqueue_jobs_gone',
               'pgqueue_letters_gone', 'pgqueue_make_archive_day',
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
