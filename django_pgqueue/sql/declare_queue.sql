-- Makes a pull queue, or changes what is said of one: how many seconds a message is
-- its receiver's, and how often it is received at most. NULL: as it is; at first 30
-- seconds, and 5 times.
--
-- Called by queues/pull.py, and by whoever is not Python.
--
-- A queue of tasks becomes one only while nothing is in it, and "default" never: workers
-- pass by a pull queue. Where in_changes is false, one that is there stays as it is.
--
-- SECURITY DEFINER, as all functions of pull queues: a role needs EXECUTE of these alone.
-- So they are pinned (pins.sql), and not for everybody: whoever they are granted to.
--
-- Locks: where something changes, a row lock on the queue's row until the caller's
-- transaction ends; who declares the same meanwhile waits for it.
CREATE OR REPLACE FUNCTION pgqueue_declare_queue(
    queue text,
    visibility_seconds float8 DEFAULT NULL,
    max_receives integer DEFAULT NULL,
    in_changes boolean DEFAULT true
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    said record;
BEGIN
    SELECT q.kind, q.visibility_seconds, q.max_receives INTO said
      FROM pgqueue_queue q WHERE q.name = $1;
    IF said.kind = 'pull'
       AND (NOT in_changes
            OR (coalesce($2, said.visibility_seconds), coalesce($3, said.max_receives))
               IS NOT DISTINCT FROM (said.visibility_seconds, said.max_receives)) THEN
        RETURN;
    END IF;
    IF ($1 ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$') IS NOT TRUE OR $1 = 'default' THEN
        RAISE 'a pull queue cannot be called %: a name has 1 to 63 letters, digits, _, . '
            'and -, the first no . or -; and "default" is a queue of tasks', $1
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $2 NOT BETWEEN 1 AND 43200 THEN
        RAISE 'visibility_seconds of the queue % is %: it is from 1 to 43200 (12 hours)',
            $1, $2 USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $3 NOT BETWEEN 1 AND 32767 THEN
        RAISE 'max_receives of the queue % is %: it is from 1 to 32767', $1, $3
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Looked up again, by the statement that looks for jobs: somebody may have made it
    -- meanwhile, and sent to it.
    IF EXISTS (SELECT FROM pgqueue_job j WHERE j.queue = $1)
       AND NOT EXISTS (SELECT FROM pgqueue_queue q
                        WHERE q.name = $1 AND q.kind = 'pull') THEN
        RAISE 'the queue % has jobs of tasks, which nobody would run in a pull queue', $1
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Choose another name, or wait until they are done.';
    END IF;
    INSERT INTO pgqueue_queue AS q (name, kind, visibility_seconds, max_receives)
    VALUES ($1, 'pull', $2, $3)
    ON CONFLICT (name) DO UPDATE
       SET kind = 'pull',
           visibility_seconds = coalesce(EXCLUDED.visibility_seconds,
                                         q.visibility_seconds),
           max_receives = coalesce(EXCLUDED.max_receives, q.max_receives);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_declare_queue(text, float8, integer, boolean)
    FROM PUBLIC;
