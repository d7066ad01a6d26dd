-- Reads receipts: texts such as 4711:2, the id of a message and which of its deliveries
-- it was, with a blank between. In the order of ids, so that two who lock the same
-- messages do so in one order.
--
-- Called by pgqueue_ack(), pgqueue_nack(), pgqueue_reject() and pgqueue_extend().
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_pull_receipts(
    in_receipts text, OUT ids bigint[], OUT deliveries integer[]
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    texts text[];
BEGIN
    -- One is read by expressions alone, without a query: most calls have one.
    IF in_receipts ~ '^[0-9]{1,18}:[0-9]{1,9}$' THEN
        ids := ARRAY[split_part(in_receipts, ':', 1)::bigint];
        deliveries := ARRAY[split_part(in_receipts, ':', 2)::integer];
        RETURN;
    END IF;
    IF (in_receipts ~ '^[0-9]{1,18}:[0-9]{1,9}(?: [0-9]{1,18}:[0-9]{1,9})*$')
       IS NOT TRUE THEN
        RAISE 'no receipts: "%"', left(in_receipts, 100)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'pgqueue_receive() returns them, such as 4711:2; of several, '
                      'write one blank between.';
    END IF;
    texts := string_to_array(in_receipts, ' ');
    IF cardinality(texts) > 1000 THEN
        RAISE '% receipts in one call: 1000 are the most', cardinality(texts)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Send several calls.';
    END IF;
    SELECT array_agg(read.id), array_agg(read.delivery) INTO ids, deliveries
      FROM (SELECT split_part(told, ':', 1)::bigint AS id,
                   split_part(told, ':', 2)::integer AS delivery
              FROM unnest(texts) AS told ORDER BY 1) read;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_receipts(text) FROM PUBLIC;
