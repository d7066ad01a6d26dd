-- Returns the lane of a job that a message makes: that of its subscription's task, and
-- the texts of what lane_by names, as tasks/lanes.py makes it of arguments. NULL: one of
-- them is NULL, and the job waits for nobody.
--
-- Called by pgqueue_store_message(), pgqueue_store_messages() and log/backfill.py, of
-- subscriptions with a lane. What lane_by may name is said by subscription_lane.sql.
--
-- Of a payload it takes the text that tasks/keys.py has of the same value; a date and a
-- UUID are tagged. What that refuses has the text of its JSON here: a message is there,
-- and nobody is to be told.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_message_lane(
    task text, lane_by text[], name text, key text, payload jsonb
) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    lane text := task;
    part text;
    value jsonb;
BEGIN
    FOREACH part IN ARRAY lane_by LOOP
        IF part = 'key' THEN
            lane := lane || ':' || key;
        ELSIF part = 'name' THEN
            lane := lane || ':' || name;
        ELSE
            value := payload #> (string_to_array(part, '.'))[2:];
            lane := lane || ':' || CASE
                WHEN value ->> '__pgqueue__' IN ('date', 'uuid') THEN value ->> 'value'
                ELSE value #>> '{}' END;
        END IF;
    END LOOP;
    RETURN CASE WHEN length(lane) <= 255 THEN lane
        ELSE left(lane, 222) || '~'
             || left(encode(sha256(convert_to(lane, 'UTF8')), 'hex'), 32) END;
END $$;
