-- Refuses times that a message cannot have.
--
-- Called by pgqueue_send() and pgqueue_send_many().
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_check_send(
    in_delay float8, in_expires float8, in_max_receives integer
) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF in_delay NOT BETWEEN 0 AND 31622400 THEN
        RAISE 'delay_seconds is %: it is from 0 to 31622400 (366 days)', in_delay
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF in_expires NOT BETWEEN 0 AND 31622400 THEN
        RAISE 'expires_seconds is %: it is from 0 to 31622400 (366 days)', in_expires
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF in_max_receives NOT BETWEEN 1 AND 32767 THEN
        RAISE 'max_receives is %: it is from 1 to 32767', in_max_receives
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_check_send(float8, float8, integer) FROM PUBLIC;
