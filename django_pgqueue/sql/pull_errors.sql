-- Adds an entry to the errors of a message: 100 at most, the first and the latest; and
-- of what a client says 10,000 characters.
--
-- Called by pgqueue_receive(), pgqueue_nack() and pgqueue_pull_bury().
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_pull_errors(
    in_errors jsonb, in_kind text, in_message text, in_receiver text,
    in_attempt integer, in_delivery integer
) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN jsonb_array_length(in_errors) >= 100 THEN in_errors - 1
                ELSE in_errors END
        || jsonb_build_object(
            'kind', in_kind, 'worker', in_receiver, 'attempt', in_attempt,
            'delivery', in_delivery, 'at', statement_timestamp(),
            'message', left(in_message, 10000));
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_errors(
    jsonb, text, text, text, integer, integer) FROM PUBLIC;
