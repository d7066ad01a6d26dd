-- Names the lane of a pull queue that messages of a group wait in: as a lane of the task
-- "pgqueue.pull", with the values queue and group. NULL and '' are none.
--
-- Called by pgqueue_send() and pgqueue_send_many(). pgqueue_receive() takes the group
-- from the name again.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_pull_lane(in_queue text, in_lane text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF length(in_lane) > 128 THEN
        RAISE 'the lane %… has % characters: 128 are the most', left(in_lane, 50),
            length(in_lane)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Name it by a key or a hash.';
    END IF;
    RETURN 'pgqueue.pull:' || in_queue || ':' || nullif(in_lane, '');
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_lane(text, text) FROM PUBLIC;
