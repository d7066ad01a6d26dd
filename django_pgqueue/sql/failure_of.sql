-- Returns what made a workflow fail, for its on_error: the first ten of its steps that
-- did, or of batches that are in it, and how many there are.
--
-- Called by store_steps.sql.
--
-- Locks: none.
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
