-- Ends messages that were received and that no receiver can do anything with: they go to
-- the dead letters, with the reason that is told. Returns as pgqueue_ack().
--
-- Called by queues/pull.py, and by whoever is not Python.
--
-- Locks: those of pgqueue_pull_bury().
CREATE OR REPLACE FUNCTION pgqueue_reject(
    receipts text, reason text DEFAULT NULL, wakes boolean DEFAULT true
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    ours record;
    ended record;
BEGIN
    SELECT * INTO ours FROM pgqueue_pull_receipts($1);
    SELECT * INTO ended FROM pgqueue_pull_bury(
        ours.ids, ours.deliveries, 'rejected', 'error',
        coalesce($2, 'Rejected by its receiver.'), true);
    IF wakes AND ended.queues IS NOT NULL THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || queue)
           FROM unnest(ended.queues) AS queue;
    END IF;
    RETURN pgqueue_pull_answer(ours.ids, ours.deliveries, ended.done);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_reject(text, text, boolean) FROM PUBLIC;
