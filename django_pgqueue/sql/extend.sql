-- Keeps messages that were received for so many seconds from now on. Returns as
-- pgqueue_ack().
--
-- Called by queues/pull.py, and by whoever is not Python.
--
-- Locks: row locks on the messages, until the caller's transaction ends; it waits for
-- whoever has one.
CREATE OR REPLACE FUNCTION pgqueue_extend(receipts text, visibility_seconds float8)
RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    ours record;
    extended bigint[];
BEGIN
    IF ($2 BETWEEN 1 AND 43200) IS NOT TRUE THEN
        RAISE 'visibility_seconds is %: it is from 1 to 43200 (12 hours)', $2
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'pgqueue_nack() gives a message back at once.';
    END IF;
    SELECT * INTO ours FROM pgqueue_pull_receipts($1);
    WITH kept AS (
        UPDATE pgqueue_job AS j
           SET visible_at = statement_timestamp() + make_interval(secs => $2)
          FROM unnest(ours.ids, ours.deliveries) AS held(id, delivery)
         WHERE j.id = held.id AND j.deliveries = held.delivery
           AND j.leased_by IS NOT NULL AND j.task = 'pgqueue.pull'
        RETURNING j.id)
    SELECT array_agg(id) INTO extended FROM kept;
    RETURN pgqueue_pull_answer(ours.ids, ours.deliveries, extended);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_extend(text, float8) FROM PUBLIC;
