-- Publishes what a statement has changed: a message for each row, in one statement for
-- every hundred rows or more.
--
-- Called by the triggers that CaptureChanges() makes on tables of users
-- (log/captures.py), as whoever writes. Its one argument is JSON: name, on, columns or
-- NULL, without, when or NULL, wakes, bytes_max.
--
-- Old and new rows are those of one primary key: one that changes is a delete of the old
-- key and an insert of the new one. Which columns there are is looked up each time, so
-- that a table may change; and they alone are read, since others may be large. So that
-- query is planned for each statement, and does little; what is made of its rows is
-- planned once in a session.
--
-- A NOTICE tells Python, which sent the statement, whom to wake after the commit
-- (topics/captured.py): a NOTIFY in here would let commits wait for one another. What the
-- transaction has told is a setting, which goes back with a savepoint, as what Python
-- does about it.
--
-- Locks: those of pgqueue_begin_publish().
CREATE OR REPLACE FUNCTION pgqueue_capture() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    said jsonb := TG_ARGV[0];
    bytes_max integer := said -> 'bytes_max';
    rows_max integer := greatest(1, least(5000, 134217728 / bytes_max));
    topic text := split_part(said ->> 'name', '.', 1);
    actor text := current_setting('pgqueue.actor', true);
    headers jsonb := '{}';
    rows_there bigint;
    described record;
    picked record;
    pks jsonb[];
    olds jsonb[];
    news jsonb[];
    items jsonb;
    stored record;
    has_groups boolean := false;
    woken text[] := '{}';
BEGIN
    IF TG_OP = 'DELETE' THEN
        rows_there := count(*) FROM pgqueue_old;
    ELSE
        rows_there := count(*) FROM pgqueue_new;
    END IF;
    IF rows_there = 0 THEN
        RETURN NULL;
    END IF;
    IF actor <> '' THEN
        headers := jsonb_build_object('actor', actor);
    END IF;
    SELECT count(key.place) AS keys,
           min(format('%I', a.attname)) FILTER (WHERE key.place = 1) AS key,
           string_agg(format('coalesce(new.%1$I, old.%1$I)', a.attname), ', '
                      ORDER BY key.place) FILTER (WHERE key.place > 0) AS pk,
           string_agg(format('old.%1$I = new.%1$I', a.attname), ' AND ')
               FILTER (WHERE key.place > 0) AS pairs,
           coalesce(array_agg(a.attname) FILTER (
               WHERE a.attgenerated <> 'v' AND
                     CASE WHEN said -> 'columns' = 'null'
                          THEN NOT said -> 'without' ? a.attname::text
                          ELSE said -> 'columns' ? a.attname::text END), '{}') AS columns
      INTO described
      FROM pg_attribute a
      LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
     CROSS JOIN LATERAL (
           SELECT array_position(i.indkey::smallint[], a.attnum) + 1) key(place)
     WHERE a.attrelid = TG_RELID AND a.attnum > 0 AND NOT a.attisdropped;
    IF described.keys = 0 THEN
        RAISE EXCEPTION 'changes of % cannot be captured: it has no primary key, by '
            'which old and new rows are found', TG_RELID::regclass
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    -- A function takes a hundred arguments.
    SELECT string_agg(format('%1$L, old.%1$I', c.name), joint) AS old,
           string_agg(format('%1$L, new.%1$I', c.name), joint) AS new
      INTO picked
      FROM unnest(described.columns) WITH ORDINALITY AS c(name, place),
           LATERAL (SELECT CASE c.place % 50 WHEN 1 THEN ') || jsonb_build_object('
                                ELSE ', ' END) j(joint);
    FOR pks, olds, news IN EXECUTE
        'SELECT array_agg(pk), array_agg(old), array_agg(new) FROM (SELECT '
        || CASE described.keys WHEN 1 THEN 'to_jsonb(' ELSE 'jsonb_build_array(' END
        || described.pk || ') AS pk, CASE WHEN old.' || described.key || ' IS NOT NULL'
        || ' THEN jsonb_build_object(' || coalesce(picked.old, '') || ') END AS old,'
        || ' CASE WHEN new.' || described.key || ' IS NOT NULL'
        || ' THEN jsonb_build_object(' || coalesce(picked.new, '') || ') END AS new'
        || CASE WHEN rows_there > rows_max
                THEN ', (row_number() OVER () - 1) / ' || rows_max || ' AS part'
                ELSE '' END
        || ' FROM ' || CASE TG_OP
            WHEN 'INSERT' THEN 'pgqueue_new AS new LEFT JOIN pgqueue_new AS old ON false'
            WHEN 'DELETE' THEN 'pgqueue_old AS old LEFT JOIN pgqueue_old AS new ON false'
            ELSE 'pgqueue_old AS old FULL JOIN pgqueue_new AS new ON '
                || described.pairs END
        || coalesce(' WHERE (' || (said ->> 'when') || ')', '') || ') captured'
        || CASE WHEN rows_there > rows_max THEN ' GROUP BY part ORDER BY part'
                ELSE '' END
    LOOP
        SELECT jsonb_agg(jsonb_build_array(
                   (said ->> 'name') || '.' || message.act,
                   CASE WHEN length(message.pk #>> '{}') > 1000
                        THEN md5(message.pk #>> '{}') ELSE message.pk #>> '{}' END,
                   CASE WHEN pg_column_size(message.payload) < bytes_max / 6
                          OR octet_length(message.payload::text) <= bytes_max
                        THEN message.payload
                        ELSE pgqueue_capture_less(message.payload, bytes_max / greatest(
                            4, 4 * cardinality(described.columns))) END,
                   headers) ORDER BY message.place)
          INTO items
          FROM (SELECT change.pk, change.place, change.act, jsonb_build_object(
                           'table', TG_TABLE_NAME, 'pk', change.pk,
                           'old', change.old, 'new', change.new,
                           'changed', ARRAY(
                               SELECT c.key
                                 FROM jsonb_each(coalesce(change.new, change.old)) c
                                WHERE change.act <> 'update'
                                   OR c.value IS DISTINCT FROM change.old -> c.key)
                           ) AS payload
                  FROM (SELECT one.*, CASE WHEN one.old IS NULL THEN 'insert'
                                           WHEN one.new IS NULL THEN 'delete'
                                           ELSE 'update' END AS act
                          FROM unnest(pks, olds, news)
                               WITH ORDINALITY AS one(pk, old, new, place)) change
                 WHERE change.old IS DISTINCT FROM change.new
                   AND said -> 'on' ? change.act) message;
        IF items IS NOT NULL THEN
            stored := pgqueue_store_messages(topic, items);
            has_groups := has_groups OR stored.has_groups;
            IF NOT stored.queues <@ woken THEN
                woken := woken || stored.queues;
            END IF;
        END IF;
    END LOOP;
    IF has_groups THEN
        woken := woken || ('!topic ' || topic);
    END IF;
    IF woken = '{}' THEN
        RETURN NULL;
    END IF;
    IF said ->> 'wakes' = 'now' THEN
        PERFORM pg_notify(pgqueue_channel(), name) FROM unnest(woken) name;
    ELSIF NOT woken <@ coalesce(
        nullif(current_setting('pgqueue.woken', true), ''), '{}')::text[] THEN
        -- Once in a transaction for each: it is a packet of its own.
        PERFORM set_config('pgqueue.woken', (woken || coalesce(nullif(
            current_setting('pgqueue.woken', true), ''), '{}')::text[])::text, true);
        RAISE NOTICE 'changes of % were published to %', TG_TABLE_NAME, topic
            USING ERRCODE = 'PQ001', DETAIL = array_to_json(woken);
    END IF;
    RETURN NULL;
END $$;
