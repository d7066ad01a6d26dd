-- Ends messages that were received: they are done, and go to the archive. Returns
-- {"done": how many, "stale": [receipts]}; see pull_answer.sql.
--
-- Called by queues/pull.py, and by whoever is not Python. In a transaction with what the
-- message has caused, both happen or neither.
--
-- wakes: where a message was in a lane, receivers hear that the next one may go.
--
-- Locks: those of pgqueue_pull_archive().
CREATE OR REPLACE FUNCTION pgqueue_ack(receipts text, wakes boolean DEFAULT true)
RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    ours record;
    ended record;
BEGIN
    SELECT * INTO ours FROM pgqueue_pull_receipts($1);
    SELECT * INTO ended
      FROM pgqueue_pull_archive(ours.ids, ours.deliveries, 'succeeded', true);
    IF wakes AND ended.queues IS NOT NULL THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || queue)
           FROM unnest(ended.queues) AS queue;
    END IF;
    RETURN pgqueue_pull_answer(ours.ids, ours.deliveries, ended.done);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_ack(text, boolean) FROM PUBLIC;
