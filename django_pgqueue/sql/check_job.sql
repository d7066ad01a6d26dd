-- Refuses a row that a worker could not run, by the name of the rule that it breaks.
--
-- Called by the CHECK pgqueue_job_is_sound (job_is_sound.sql), for each row that is
-- inserted or updated. Not by seven CHECKs: one is stored as text, and each statement
-- reads that text and prepares it anew, 12.7 KB for seven. What a PL/pgSQL function was
-- compiled to is kept with the session.
--
-- Qualified, since a function's body is read by the search_path of whoever inserts:
-- that of a restore is empty, and somebody may have an operator of the same name. A SET
-- clause would do it too, and cost more than the whole check.
--
-- All rules in one expression first: that is all that a sound row costs. An AND of
-- three values is false if one rule is, and a rule that is NULL refuses nothing. Then
-- by name, as PostgreSQL tries CHECKs: of several broken rules the first is told.
--
-- Locks: none.
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
