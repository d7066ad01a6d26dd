-- Starts a workflow anew: what has succeeded keeps its results, but for one step and what
-- comes after it; all else runs.
--
-- Called by queues/workflows.py. A new workflow with new jobs: the old one stays as it
-- is, and gives up its key. The answer is NULL where it has not ended, undoes what it
-- has done, takes additions, or is not there.
--
-- Locks: the row of the old workflow, until the end of the transaction; those of INSERTs.
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
