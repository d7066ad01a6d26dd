-- Answers what became of receipts: how many were written, and which are stale: their
-- messages have ended, or are somebody else's by now, and nothing was written for them.
--
-- Called by pgqueue_ack(), pgqueue_nack(), pgqueue_reject() and pgqueue_extend().
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_pull_answer(
    in_ids bigint[], in_deliveries integer[], in_done bigint[]
) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- Without a query: of most calls none is stale.
    IF cardinality(in_done) = cardinality(in_ids) THEN
        RETURN jsonb_build_object('done', cardinality(in_done), 'stale', '[]'::jsonb);
    END IF;
    RETURN jsonb_build_object(
        'done', coalesce(cardinality(in_done), 0),
        'stale', coalesce((
            SELECT jsonb_agg(asked.id || ':' || asked.delivery)
              FROM unnest(in_ids, in_deliveries) AS asked(id, delivery)
             WHERE asked.id <> ALL(coalesce(in_done, '{}'))), '[]'));
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_answer(bigint[], integer[], bigint[])
    FROM PUBLIC;
