-- Gives messages back that were received: they are due again after a delay, and keep
-- their place in their lane. Those that were received often enough go to the dead
-- letters. Returns {"done": how many, "dead": how many of these, "stale": [receipts]}.
--
-- Called by queues/pull.py, and by whoever is not Python.
--
-- They are counted as in pull_archive.sql.
--
-- Locks: row locks on the messages, until the caller's transaction ends; it waits for
-- whoever has one.
CREATE OR REPLACE FUNCTION pgqueue_nack(
    receipts text,
    delay_seconds float8 DEFAULT 0,
    error text DEFAULT NULL,
    wakes boolean DEFAULT true
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    ours record;
    back record;
    buried bigint[];
    their_queues text[];
BEGIN
    IF ($2 BETWEEN 0 AND 31622400) IS NOT TRUE THEN
        RAISE 'delay_seconds is %: it is from 0 to 31622400 (366 days)', $2
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO ours FROM pgqueue_pull_receipts($1);
    WITH given AS (
        UPDATE pgqueue_job AS j
           SET visible_at = statement_timestamp() + make_interval(secs => $2),
               leased_by = NULL, leased_at = NULL,
               errors = CASE WHEN $3 IS NULL THEN j.errors
                             ELSE pgqueue_pull_errors(j.errors, 'error', $3, j.leased_by,
                                                      j.attempt, j.deliveries) END
          FROM unnest(ours.ids, ours.deliveries) AS held(id, delivery)
          -- As it was received: what is returned of j is what was written.
          JOIN pgqueue_job AS o ON o.id = held.id AND o.deliveries = held.delivery
         WHERE j.id = held.id AND j.deliveries = held.delivery AND j.leased_by IS NOT NULL
           AND j.task = 'pgqueue.pull' AND j.attempt < j.max_attempts
        RETURNING j.id, j.queue, o.leased_at,
                  o.leased_at - coalesce(o.run_after, o.enqueued_at) AS waited),
    counted AS (
        INSERT INTO pgqueue_pull_end (queues, outcome, waits, runs)
        SELECT array_agg(queue), 'retried', array_agg(date_part('epoch', waited)::real),
               array_agg(
                   date_part('epoch', statement_timestamp() - leased_at)::real)
          FROM given HAVING count(*) > 0)
    SELECT coalesce(array_agg(id), '{}') AS done, array_agg(DISTINCT queue) AS queues
      INTO back FROM given;
    IF cardinality(back.done) < cardinality(ours.ids) THEN
        SELECT done, queues INTO buried, their_queues FROM pgqueue_pull_bury(
            ours.ids, ours.deliveries, 'exhausted',
            CASE WHEN $3 IS NOT NULL THEN 'error' END, $3, true);
    END IF;
    IF wakes THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || queue)
           FROM (SELECT unnest(back.queues) UNION SELECT unnest(their_queues)) told(queue);
    END IF;
    RETURN pgqueue_pull_answer(ours.ids, ours.deliveries, back.done || buried)
        || jsonb_build_object('dead', coalesce(cardinality(buried), 0));
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_nack(text, float8, text, boolean) FROM PUBLIC;
