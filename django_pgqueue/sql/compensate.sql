-- Goes on with what sagas undo: one compensation after the other, that of the step
-- which came last first, as ids say; clocks may be set back. When none is left, the saga
-- is compensated.
--
-- Called by advance.sql, letters_gone.sql and queues/workflows.py, which have locked
-- the workflows. A compensation that is dead holds the others up, until somebody
-- redrives it, or sets it aside since it was done by hand.
--
-- The dead letters of steps are set aside: that they failed has been dealt with, and a
-- step that ran again while others are undone would leave the saga neither done nor
-- undone.
--
-- Locks: row locks on the dead letters of the steps, and on steps; and those of
-- pgqueue_start_steps(). Raises 23514 when the archive has no partition for today: who
-- settles makes it, and settles again.
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
