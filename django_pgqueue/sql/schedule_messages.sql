-- Stores messages that are published later, each at its moment.
--
-- Called by log/scheduled.py and pgqueue_publish().
--
-- An item is [name, key, payload, headers, moment, seconds]: the moment is a text, and
-- where it is null, so many seconds from now on count. Ids fall in the order of the
-- items, from -1 on: those of messages in a log are above zero. The seconds that are
-- returned are those until the first of them is due.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_schedule_messages(
    items jsonb,
    now timestamptz,
    OUT ids bigint[],
    OUT seconds float8
) LANGUAGE plpgsql AS $$
BEGIN
    WITH moment AS (
        SELECT item.value, item.place,
               coalesce((item.value ->> 4)::timestamptz,
                        now + (item.value ->> 5)::float8 * interval '1 second') AS at
          FROM jsonb_array_elements(items) WITH ORDINALITY AS item(value, place)
    ), stored AS (
        INSERT INTO pgqueue_scheduled_message AS m
               (topic, name, key, payload, headers, run_after, due_at)
        SELECT split_part(moment.value ->> 0, '.', 1), moment.value ->> 0,
               moment.value ->> 1, moment.value -> 2, moment.value -> 3,
               moment.at, moment.at
          FROM moment ORDER BY moment.place
        RETURNING m.id, m.due_at
    )
    SELECT array_agg(stored.id ORDER BY stored.id DESC),
           extract(epoch FROM min(stored.due_at) - now)::float8
      INTO ids, seconds FROM stored;
END $$;
