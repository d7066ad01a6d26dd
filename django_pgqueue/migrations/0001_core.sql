-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- channel.sql
CREATE OR REPLACE FUNCTION pgqueue_channel() RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    -- Of a table: its schema, then its name, both unquoted.
    names text[] := (pg_catalog.pg_identify_object_as_address(
        'pg_catalog.pg_class'::regclass, 'pgqueue_job'::regclass, 0)).object_names;
BEGIN
    RETURN 'pgqueue_' || CASE WHEN octet_length(names[1]) <= 55 THEN names[1]
                              ELSE md5(names[1]) END;
END $$;

-- dedup_key.sql
CREATE OR REPLACE FUNCTION pgqueue_dedup_key(task text, by jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    whole text := $1 || ' ' || $2::text;
BEGIN
    IF length(whole) <= 255 AND jsonb_typeof($2) <> 'array' THEN
        RETURN whole;
    END IF;
    RETURN left($1, 190) || ' '
        || encode(sha256(convert_to(whole, 'UTF8')), 'hex');
END $$;

-- installation.sql
DO $do$ BEGIN
    EXECUTE format(
        'CREATE FUNCTION pgqueue_installation() RETURNS uuid LANGUAGE sql IMMUTABLE'
        ' AS $$ SELECT %L::uuid $$', gen_random_uuid());
END $do$;

-- store.sql
CREATE OR REPLACE FUNCTION pgqueue_store(
    queue text,
    task text,
    args jsonb,
    kwargs jsonb,
    headers jsonb,
    priority integer,
    max_attempts integer
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    job_id bigint;
BEGIN
    INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    RETURNING id INTO STRICT job_id;
    RETURN job_id;
END $$;

-- store_unique.sql
CREATE OR REPLACE FUNCTION pgqueue_store_unique(
    in_queue text,
    in_task text,
    in_args jsonb,
    in_kwargs jsonb,
    in_headers jsonb,
    in_priority integer,
    in_max_attempts integer,
    in_run_after timestamptz,
    in_expires_at timestamptz,
    in_moment timestamptz,
    in_key text,
    in_hold text,
    in_conflict text,
    in_max_wait interval,
    in_period interval,
    in_jobs integer,
    in_locks boolean,
    OUT out_id bigint,
    OUT out_conflict text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    holder record;
    latest timestamptz;
BEGIN
    FOR round IN 1..100 LOOP
        IF in_period IS NOT NULL THEN
            SELECT w.job_id INTO out_id FROM pgqueue_dedup_window w
             WHERE w.key = in_key AND w.until > in_moment AND w.jobs >= in_jobs;
            IF FOUND THEN
                out_conflict := CASE WHEN in_hold IS NULL THEN 'throttled'
                                     ELSE 'skipped' END;
                RETURN;
            END IF;
        END IF;

        INSERT INTO pgqueue_job AS j (queue, task, args, kwargs, headers, priority,
                                      max_attempts, run_after, expires_at, dedup_key,
                                      queued_key)
        VALUES (in_queue, in_task, in_args, in_kwargs, in_headers, in_priority,
                in_max_attempts, in_run_after, in_expires_at,
                CASE WHEN in_hold IS NOT NULL THEN in_key END,
                CASE WHEN in_hold = 'queued' THEN in_key END)
        ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
        RETURNING j.id INTO out_id;
        IF FOUND THEN
            IF in_period IS NULL THEN
                RETURN;
            END IF;
            INSERT INTO pgqueue_dedup_window AS w (key, until, jobs, job_id)
            VALUES (in_key, in_moment + in_period, 1, out_id)
            ON CONFLICT (key) DO UPDATE
               SET until = CASE WHEN w.until > in_moment THEN w.until
                                ELSE excluded.until END,
                   jobs = CASE WHEN w.until > in_moment THEN w.jobs + 1 ELSE 1 END,
                   job_id = excluded.job_id
             WHERE w.until <= in_moment OR w.jobs < in_jobs;
            IF FOUND THEN
                RETURN;
            END IF;
            -- Somebody else's job was the last of this period meanwhile.
            DELETE FROM pgqueue_job j WHERE j.id = out_id;
            CONTINUE;
        END IF;

        IF in_conflict IN ('replace', 'debounce') THEN
            UPDATE pgqueue_job AS j
               SET args = in_args, kwargs = in_kwargs,
                   headers = in_headers
                       || coalesce((SELECT jsonb_object_agg(h.key, h.value)
                                      FROM jsonb_each(j.headers) h
                                     WHERE h.key LIKE 'pgqueue.%'), '{}')
                       || CASE WHEN j.deliveries = 0 THEN '{}'::jsonb
                          ELSE jsonb_build_object('pgqueue.edits', 1 + CASE
                              WHEN j.headers ->> 'pgqueue.edits' ~ '^[0-9]{1,9}$'
                              THEN (j.headers ->> 'pgqueue.edits')::bigint
                              ELSE 0 END) END,
                   attempt = 0, expires_at = in_expires_at,
                   run_after = CASE WHEN in_conflict = 'replace' THEN j.run_after
                       ELSE least(in_run_after, j.enqueued_at + in_max_wait) END,
                   visible_at = CASE
                       WHEN in_conflict = 'replace' OR j.visible_at IS NULL
                       THEN j.visible_at
                       ELSE greatest(in_moment, least(
                           in_run_after, j.enqueued_at + in_max_wait)) END
             WHERE j.dedup_key = in_key AND j.leased_by IS NULL
               AND (j.expires_at <= in_moment) IS NOT TRUE
            RETURNING j.id INTO out_id;
            IF FOUND THEN
                out_conflict := CASE WHEN in_conflict = 'replace' THEN 'replaced'
                                     ELSE 'debounced' END;
                RETURN;
            END IF;
        ELSIF in_conflict = 'reschedule' THEN
            UPDATE pgqueue_job AS j
               SET run_after = in_run_after,
                   visible_at = CASE WHEN j.visible_at IS NOT NULL
                                THEN greatest(in_run_after, in_moment) END
             WHERE j.dedup_key = in_key AND j.leased_by IS NULL
               AND (j.expires_at <= in_moment) IS NOT TRUE
            RETURNING j.id INTO out_id;
            IF FOUND THEN
                out_conflict := 'rescheduled';
                RETURN;
            END IF;
        END IF;

        SELECT j.id, j.leased_by IS NULL AS waits,
               j.queued_key IS NOT NULL
                   AND j.visible_at < in_moment - interval '10 s' AS is_late,
               (j.expires_at <= in_moment) IS TRUE AS is_over INTO holder
          FROM pgqueue_job j WHERE j.dedup_key = in_key;
        CONTINUE WHEN NOT FOUND;
        IF holder.waits AND holder.is_over THEN
            -- It will never run, and must not stand for a job that shall.
            UPDATE pgqueue_job AS j SET dedup_key = NULL, queued_key = NULL
             WHERE j.id = holder.id AND j.dedup_key = in_key AND j.leased_by IS NULL;
            CONTINUE;
        END IF;
        IF holder.waits THEN
            CONTINUE WHEN in_conflict NOT IN ('skip', 'error');
            IF in_locks AND holder.is_late THEN
                IF in_conflict = 'skip' THEN
                    DELETE FROM pgqueue_dedup_call WHERE id = ANY(ARRAY(
                        SELECT c.id FROM pgqueue_dedup_call c WHERE c.key = in_key
                           FOR UPDATE SKIP LOCKED));
                    INSERT INTO pgqueue_dedup_call (
                        key, holder_id, queue, task, args, kwargs, headers, priority,
                        max_attempts, run_after, expires_at, hold, period, jobs)
                    VALUES (in_key, holder.id, in_queue, in_task, in_args, in_kwargs,
                            in_headers, in_priority, in_max_attempts, in_run_after,
                            in_expires_at, in_hold, in_period, in_jobs);
                END IF;
            ELSIF in_locks THEN
                PERFORM FROM pgqueue_job j
                  WHERE j.id = holder.id AND j.dedup_key = in_key
                    AND j.leased_by IS NULL FOR KEY SHARE;
                CONTINUE WHEN NOT FOUND;
            END IF;
        END IF;
        out_id := holder.id;
        out_conflict := 'skipped';
        RETURN;
    END LOOP;
    RAISE 'dedup key "%": its holder changed too often to be found', in_key
        USING ERRCODE = 'serialization_failure';
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
                        deliveries, lane, lane_capacity, progress, workflow_id,
                        parent_id, message_id, schedule_id, dedup_key, errors, state,
                        finished_at)
                    SELECT g.id, g.queue, g.task, g.args, g.kwargs, g.headers,
                           g.priority, g.run_after, g.enqueued_at, g.expires_at,
                           g.attempt, g.max_attempts, g.crashes, g.deliveries, g.lane,
                           g.lane_capacity, g.progress, g.workflow_id, g.parent_id,
                           g.message_id, g.schedule_id, g.queued_key,
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

-- repeat_calls.sql
CREATE OR REPLACE FUNCTION pgqueue_repeat_calls(
    in_calls integer,
    OUT out_id bigint,
    OUT out_queue text,
    OUT out_outcome text
) RETURNS SETOF record LANGUAGE plpgsql SET lock_timeout = '10ms' AS $$
#variable_conflict use_column
DECLARE
    call record;
BEGIN
    FOR call IN
        WITH free AS MATERIALIZED (
            SELECT * FROM pgqueue_dedup_call c
             ORDER BY random() LIMIT in_calls FOR UPDATE SKIP LOCKED)
        SELECT * FROM free ORDER BY key COLLATE "C", id
    LOOP
        out_queue := call.queue;
        BEGIN
            SELECT stored.out_id, coalesce(stored.out_conflict, 'stored')
              INTO out_id, out_outcome
              FROM pgqueue_store_unique(
                   call.queue, call.task, call.args, call.kwargs, call.headers,
                   call.priority, call.max_attempts, call.run_after, call.expires_at,
                   clock_timestamp(), call.key, call.hold, 'skip', NULL, call.period,
                   call.jobs, false) AS stored;
            DELETE FROM pgqueue_dedup_call c WHERE c.id = call.id;
        EXCEPTION
            WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
                out_id := call.holder_id;
                out_outcome := 'waits';
            WHEN OTHERS THEN
                out_id := call.holder_id;
                out_outcome := 'failed: ' || SQLERRM;
        END;
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
    headers jsonb DEFAULT '{}'
) RETURNS bigint LANGUAGE sql AS $$
    WITH job AS (
        SELECT stored.out_id AS id
          FROM pgqueue_store_unique(
               $4, $1, $2, $3, $10, $5, $8, $6, $7, clock_timestamp(), $9,
               CASE WHEN $9 IS NULL THEN NULL ELSE 'queued|running' END, 'skip',
               NULL, NULL, NULL, true) AS stored)
    SELECT job.id FROM job, pg_notify(pgqueue_channel(), $4)
$$;

-- check_job.sql
CREATE OR REPLACE FUNCTION pgqueue_check_job(
    queue varchar,
    task varchar,
    args jsonb,
    kwargs jsonb,
    headers jsonb,
    errors jsonb,
    priority smallint,
    attempt smallint,
    max_attempts smallint,
    crashes smallint,
    deliveries integer,
    lane_capacity integer,
    leased_by varchar,
    visible_at timestamptz,
    run_after timestamptz,
    enqueued_at timestamptz,
    expires_at timestamptz,
    leased_at timestamptz,
    cancel_requested_at timestamptz
) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF (
        (attempt OPERATOR(pg_catalog.>=) 0
         AND max_attempts OPERATOR(pg_catalog.>=) 1
         AND crashes OPERATOR(pg_catalog.>=) 0
         AND deliveries OPERATOR(pg_catalog.>=) attempt)
        AND (lane_capacity IS NULL OR lane_capacity OPERATOR(pg_catalog.>=) 1)
        AND (leased_by IS NULL OR visible_at IS NOT NULL)
        AND (queue::pg_catalog.text OPERATOR(pg_catalog.<>) ''
             AND task::pg_catalog.text OPERATOR(pg_catalog.<>) '')
        AND (pg_catalog.jsonb_typeof(args) OPERATOR(pg_catalog.=) 'array'
             AND pg_catalog.jsonb_typeof(kwargs) OPERATOR(pg_catalog.=) 'object'
             AND pg_catalog.jsonb_typeof(headers) OPERATOR(pg_catalog.=) 'object'
             AND pg_catalog.jsonb_typeof(errors) OPERATOR(pg_catalog.=) 'array')
        AND (priority OPERATOR(pg_catalog.>=) -100
             AND priority OPERATOR(pg_catalog.<=) 100)
        AND (visible_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
             AND visible_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
             AND run_after OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
             AND run_after OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
             AND enqueued_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
             AND enqueued_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
             AND expires_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
             AND expires_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
             AND leased_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
             AND leased_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
             AND cancel_requested_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
             AND cancel_requested_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00')
    ) IS NOT FALSE THEN
        RETURN true;
    END IF;

    IF (attempt OPERATOR(pg_catalog.>=) 0
        AND max_attempts OPERATOR(pg_catalog.>=) 1
        AND crashes OPERATOR(pg_catalog.>=) 0
        AND deliveries OPERATOR(pg_catalog.>=) attempt) IS FALSE THEN
        RAISE 'pgqueue_job refuses attempt %, max_attempts %, crashes %, '
            'deliveries %: max_attempts is at least 1, none is negative, and '
            'deliveries is not below attempt (pgqueue_job_attempt_counts).',
            attempt, max_attempts, crashes, deliveries
            USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                  CONSTRAINT = 'pgqueue_job_attempt_counts',
                  HINT = 'Set max_attempts alone, and leave the others to the workers.';
    END IF;
    IF (lane_capacity IS NULL OR lane_capacity OPERATOR(pg_catalog.>=) 1) IS FALSE THEN
        RAISE 'pgqueue_job refuses lane_capacity %: it is at least 1 '
            '(pgqueue_job_lane_has_capacity).',
            lane_capacity
            USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                  CONSTRAINT = 'pgqueue_job_lane_has_capacity',
                  HINT = 'Leave it out: it is 1 then.';
    END IF;
    IF (leased_by IS NULL OR visible_at IS NOT NULL) IS FALSE THEN
        RAISE 'pgqueue_job refuses leased_by % without visible_at: that is where '
            'a lease ends (pgqueue_job_leased_is_not_parked).',
            leased_by
            USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                  CONSTRAINT = 'pgqueue_job_leased_is_not_parked',
                  HINT = 'Leave leased_by to the workers.';
    END IF;
    IF (queue::pg_catalog.text OPERATOR(pg_catalog.<>) ''
        AND task::pg_catalog.text OPERATOR(pg_catalog.<>) '') IS FALSE THEN
        RAISE 'pgqueue_job refuses queue "%", task "%": neither is empty '
            '(pgqueue_job_names_are_not_empty).',
            queue, task
            USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                  CONSTRAINT = 'pgqueue_job_names_are_not_empty',
                  HINT = 'Name the task; a queue that is left out is "default".';
    END IF;
    IF (pg_catalog.jsonb_typeof(args) OPERATOR(pg_catalog.=) 'array'
        AND pg_catalog.jsonb_typeof(kwargs) OPERATOR(pg_catalog.=) 'object'
        AND pg_catalog.jsonb_typeof(headers) OPERATOR(pg_catalog.=) 'object'
        AND pg_catalog.jsonb_typeof(errors) OPERATOR(pg_catalog.=) 'array'
    ) IS FALSE THEN
        RAISE 'pgqueue_job refuses args of JSON type %, kwargs %, headers %, '
            'errors %: args and errors are arrays, kwargs and headers are '
            'objects (pgqueue_job_payload_shapes).',
            pg_catalog.jsonb_typeof(args), pg_catalog.jsonb_typeof(kwargs),
            pg_catalog.jsonb_typeof(headers), pg_catalog.jsonb_typeof(errors)
            USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                  CONSTRAINT = 'pgqueue_job_payload_shapes',
                  HINT = 'Positional arguments go into args, [1, 2]; '
                      'named ones into kwargs.';
    END IF;
    IF (priority OPERATOR(pg_catalog.>=) -100
        AND priority OPERATOR(pg_catalog.<=) 100) IS FALSE THEN
        RAISE 'pgqueue_job refuses priority %: it is from -100 to 100 '
            '(pgqueue_job_priority_range).',
            priority
            USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                  CONSTRAINT = 'pgqueue_job_priority_range',
                  HINT = 'Higher goes first; 0 is the default.';
    END IF;
    IF (visible_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
        AND visible_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
        AND run_after OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
        AND run_after OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
        AND enqueued_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
        AND enqueued_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
        AND expires_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
        AND expires_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
        AND leased_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
        AND leased_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
        AND cancel_requested_at OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'
        AND cancel_requested_at OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'
    ) IS FALSE THEN
        RAISE 'pgqueue_job refuses visible_at %, run_after %, enqueued_at %, '
            'expires_at %, leased_at %, cancel_requested_at %: each is from the '
            'year 1900 to 9998, and finite (pgqueue_job_times_are_readable).',
            visible_at, run_after, enqueued_at, expires_at, leased_at,
            cancel_requested_at
            USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                  CONSTRAINT = 'pgqueue_job_times_are_readable',
                  HINT = 'A time that does not matter is NULL.';
    END IF;
    RETURN false;
END $$;

-- job_is_sound.sql
ALTER TABLE pgqueue_job ADD CONSTRAINT pgqueue_job_is_sound CHECK (pgqueue_check_job(
    queue, task, args, kwargs, headers, errors, priority, attempt, max_attempts,
    crashes, deliveries, lane_capacity, leased_by, visible_at, run_after, enqueued_at,
    expires_at, leased_at, cancel_requested_at
));

-- job_place.sql
CREATE OR REPLACE FUNCTION pgqueue_job_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.lane IS NOT NULL THEN
        NEW.visible_at := NULL;
        NEW.lane_capacity := coalesce(NEW.lane_capacity, 1);
    ELSE
        NEW.visible_at := greatest(NEW.run_after, clock_timestamp());
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_job_place BEFORE INSERT ON pgqueue_job
    FOR EACH ROW WHEN (NEW.lane IS NOT NULL OR NEW.run_after IS NOT NULL)
    EXECUTE FUNCTION pgqueue_job_place();

-- make_archive_day.sql
CREATE OR REPLACE FUNCTION pgqueue_make_archive_day(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    parent regclass := 'pgqueue_archived_job';
    name text := 'pgqueue_archived_job_'
        || pg_catalog.to_char(day::timestamp, 'YYYYMMDD');
    today date := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::date;
    caller name := CASE pg_catalog.current_setting('role')
                        WHEN 'none' THEN session_user
                        ELSE pg_catalog.current_setting('role') END;
    schema name;
    owner oid;
    owner_there oid;
BEGIN
    IF (day < today - 1 OR day > today + 35)
       AND NOT pg_catalog.pg_has_role(caller, current_user, 'USAGE') THEN
        RAISE EXCEPTION 'the day % cannot be made by %: from yesterday on, days can be '
            'made 35 ahead', day, caller
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_catalog.pg_advisory_xact_lock(
        706701, 'pgqueue_job'::regclass::oid::integer);
    SELECT n.nspname, c.relowner INTO schema, owner
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace
     WHERE c.oid = parent;
    IF pg_catalog.pg_partition_root(pg_catalog.to_regclass(
           pg_catalog.format('%I.%I', schema, name))) = parent THEN
        RETURN false;
    END IF;
    SELECT c.relowner INTO owner_there
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace
     WHERE n.nspname = schema AND c.relname = name;
    IF owner_there <> owner THEN
        RAISE EXCEPTION 'the table %.% belongs to another role than %: drop or rename '
            'it', schema, name, parent USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE pg_catalog.format('CREATE TABLE IF NOT EXISTS %I.%I (LIKE %s'
                   ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', schema, name, parent);
    EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %I.%I'
                   ' FOR VALUES FROM (%L) TO (%L)', parent, schema, name,
                   day || ' 00:00+00', day + 1 || ' 00:00+00');
    RETURN true;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_make_archive_day(date) FROM PUBLIC;

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
               'pgqueue_make_log_day', 'pgqueue_pattern_selects', 'pgqueue_patterns_of',
               'pgqueue_publish', 'pgqueue_repeat_calls', 'pgqueue_retake_keys',
               'pgqueue_store', 'pgqueue_store_message', 'pgqueue_store_messages',
               'pgqueue_store_unique')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
