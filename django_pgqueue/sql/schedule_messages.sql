-- Stores messages that are published later: each is a job that publishes it.
--
-- Called by topics/publish.py, pgqueue_publish() and spark/write/staged.py.
--
-- An item is [name, key, payload, headers, moment, seconds]: the moment is a text, and
-- where it is null, the seconds count from now. The ids are those of the jobs, negated:
-- ids of messages in a log are above zero. Its lane lets one job of a topic through at a
-- time, the longest due first. Items of one moment are a microsecond apart, so that they
-- keep their order; the header has the moment itself. The message is where retention
-- puts the copy of one into a job's arguments, so that `erase` finds it there.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_schedule_messages(
    items jsonb,
    now timestamptz,
    OUT ids bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
    WITH moment AS (
        SELECT item.value, item.place,
               coalesce((item.value ->> 4)::timestamptz,
                        now + (item.value ->> 5)::float8 * interval '1 second') AS at
          FROM jsonb_array_elements(items) WITH ORDINALITY AS item(value, place)
    ), stored AS (
        INSERT INTO pgqueue_job (queue, task, args, priority, max_attempts, run_after,
                                 lane, lane_capacity)
        SELECT 'pgqueue_messages', 'pgqueue.publish',
               jsonb_build_array(jsonb_build_object('value', jsonb_build_object(
                   'name', moment.value -> 0, 'key', moment.value -> 1,
                   'payload', moment.value -> 2,
                   'headers', moment.value -> 3 || jsonb_build_object(
                       'pgqueue.run_after', to_char(moment.at AT TIME ZONE 'UTC',
                                                    'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
               ))),
               100, 32767,
               moment.at + interval '1 microsecond'
                         * (row_number() OVER (PARTITION BY moment.at
                                               ORDER BY moment.place) - 1),
               'pgqueue.publish:' || split_part(moment.value ->> 0, '.', 1), 1
          FROM moment ORDER BY moment.place
        RETURNING id
    )
    SELECT array_agg(-stored.id ORDER BY stored.id) INTO ids FROM stored;
END $$;
