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
    numbers bigint[];
BEGIN
    IF (in_receipts ~ '^[0-9]{1,18}:[0-9]{1,9}(?: [0-9]{1,18}:[0-9]{1,9})*$')
       IS NOT TRUE THEN
        RAISE 'no receipts: "%"', left(in_receipts, 100)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'pgqueue_receive() returns them, such as 4711:2; of several, '
                      'write one blank between.';
    END IF;
    -- An id, its delivery, the next id, …
    numbers := string_to_array(translate(in_receipts, ':', ' '), ' ')::bigint[];
    IF cardinality(numbers) > 2000 THEN
        RAISE '% receipts in one call: 1000 are the most', cardinality(numbers) / 2
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Send several calls.';
    END IF;
    SELECT array_agg(read.id), array_agg(read.delivery) INTO ids, deliveries
      FROM (SELECT numbers[place] AS id, numbers[place + 1]::integer AS delivery
              FROM generate_series(1, cardinality(numbers), 2) AS place
             ORDER BY 1) read;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_receipts(text) FROM PUBLIC;
