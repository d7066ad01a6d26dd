-- The next messages of a consumer group that nobody's task reads for: of one partition,
-- which is the caller's until its lease ends, or until he commits the last of them.
-- No row: there is nothing to read that somebody else does not have.
--
-- Called by topics/receive.py, and by whoever is not Python.
--
-- SECURITY DEFINER: it runs as its owner, so that a role needs EXECUTE alone; hence
-- what it calls is named with its schema. Not for everybody: whoever it is granted to.
--
-- The order is the proof, as in horizons.sql: the bound, and then the messages in a
-- statement of its own, which has a later snapshot in READ COMMITTED alone. Other
-- isolation is refused.
--
-- The receipt says the row, its fence, the last id of the batch and the reader, whose
-- name nobody can guess: with it the position is moved (commit_position.sql).
--
-- A reader that did not give its lease back may have died of what it read. So its
-- messages come one by one, and one that has had all attempts halts the partition,
-- where the group says so.
--
-- While the count of partitions changes, a group reads former ones beside the new ones,
-- in the order of ids: each up to the first message that is unread in one of another
-- generation which may have the same keys (unread.sql has the rule and its reasons).
-- Whether it does so is read after the bound: a change that comes later publishes
-- beyond it. What was found holds for a claim with the next fence, since a seek raises
-- the fences of all.
--
-- Looks into partitions go along the index of the log, whatever the statistics say, as
-- log/in_partition.py tells; so does unread.sql.
--
-- Locks: a row lock on one position, until the caller's transaction ends; one that
-- others have locked is passed over, and they pass over this one.
CREATE OR REPLACE FUNCTION pgqueue_read(consumer_group text, n integer DEFAULT 100)
RETURNS TABLE (id bigint, partition integer, name text, key text, payload jsonb,
               headers jsonb, published_at timestamptz, receipt text)
LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    -- Of payloads and headers as text, together; one message always passes.
    bytes_max constant bigint := 16777216;
    at constant timestamptz := pg_catalog.statement_timestamp();
    reader constant text := pg_catalog.format('pull:%s/%s',
        pg_catalog.pg_backend_pid(), pg_catalog.gen_random_uuid());
    of_group record;
    claimed record;
    bound bigint;
    ends jsonb;
    up_to bigint;
    since timestamptz;
    last bigint;
BEGIN
    IF pg_catalog.current_setting('transaction_isolation')
       NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'a log cannot be read in a transaction of %: it does not see '
            'what was published since it began, and would pass over that; read in '
            'READ COMMITTED', pg_catalog.upper(
                pg_catalog.current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    IF n IS NULL OR n < 1 OR n > 10000 THEN
        RAISE EXCEPTION 'n = %: it must be from 1 to 10000', n
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT g.id, g.topic_id, g.task, g.lease_seconds, g.on_error, g.max_attempts,
           g.paused_at, g.is_merging
      INTO of_group
      FROM pgqueue_consumer_group g JOIN pgqueue_topic t ON t.id = g.topic_id
     WHERE t.name = pg_catalog.split_part(consumer_group, '/', 1)
       AND g.name = pg_catalog.split_part(consumer_group, '/', 2);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no consumer group %: write topic/group, and make it '
            'first, with topic("…").group("…").create()', consumer_group
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF of_group.task <> '' THEN
        RAISE EXCEPTION 'workers read for the group %: its task % would not get what '
            'is read here; make a group of your own', consumer_group, of_group.task
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF of_group.paused_at IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT h.bound INTO bound FROM pgqueue_horizons() h
     WHERE h.topic_id = of_group.topic_id OR h.topic_id IS NULL
     ORDER BY h.topic_id NULLS LAST LIMIT 1;
    SELECT g.is_merging INTO of_group.is_merging
      FROM pgqueue_consumer_group g WHERE g.id = of_group.id;
    -- Up to the first day that some partition has not read, as log/days.py.
    SELECT coalesce((pg_catalog.min(d.day) + 1)::timestamp AT TIME ZONE 'UTC',
                    '-infinity')
      INTO since
      FROM pgqueue_log_day d,
           (SELECT pg_catalog.min(p.position) AS lowest FROM pgqueue_position p
             WHERE p.group_id = of_group.id) p
     WHERE d.last_id <= p.lowest
       AND NOT EXISTS (SELECT FROM pgqueue_log_day later
                        WHERE later.day = d.day + 1 AND later.last_id <= p.lowest);
    -- A partition that was added by hand since the group began has nothing from before.
    INSERT INTO pgqueue_position (group_id, partition, position)
    SELECT of_group.id, added, t.removed_to
      FROM pgqueue_topic t,
           pg_catalog.generate_series(
               t.first_partition::integer, t.first_partition + t.partitions - 1) added
     WHERE t.id = of_group.topic_id
       AND NOT EXISTS (SELECT FROM pgqueue_position p
                        WHERE p.group_id = of_group.id AND p.partition = added)
    ON CONFLICT DO NOTHING;
    LOOP
        IF of_group.is_merging THEN
            SELECT pg_catalog.jsonb_object_agg(
                       u.partition, pg_catalog.jsonb_build_array(u.fence, u.up_to))
              INTO ends
              FROM pgqueue_unread(of_group.id, of_group.topic_id, bound, since) u
             WHERE u.first_unread IS NOT NULL;
            IF ends IS NULL THEN
                RETURN;
            END IF;
        END IF;
        SELECT p.id, p.partition, p.position, p.fence + 1 AS fence, p.failures,
               p.single_to, p.leased_by IS NOT NULL AS has_lapsed,
               ends -> p.partition::text AS found
          INTO claimed
          FROM pgqueue_position p
         WHERE p.group_id = of_group.id AND p.halted_at IS NULL
           AND (p.leased_until IS NULL OR p.leased_until <= at)
           AND (p.retry_at IS NULL OR p.retry_at <= at)
           AND (SELECT m.id FROM pgqueue_message m
                 WHERE m.topic_id = of_group.topic_id
                   AND (m.partition, m.id) > (p.partition, p.position)
                   AND (m.partition, m.id) <= (
                       p.partition, CASE WHEN ends IS NULL THEN bound
                       ELSE (ends -> p.partition::text ->> 1)::bigint END)
                   AND m.published_at >= since
                 ORDER BY m.partition, m.id LIMIT 1) IS NOT NULL
         ORDER BY p.last_read_at, p.id LIMIT 1
           FOR UPDATE OF p SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        up_to := bound;
        IF ends IS NOT NULL THEN
            -- Somebody has read it, or sought, since: what was found is not true of it.
            CONTINUE WHEN (claimed.found ->> 0)::bigint <> claimed.fence - 1;
            up_to := (claimed.found ->> 1)::bigint;
        END IF;
        IF claimed.has_lapsed THEN
            claimed.failures := claimed.failures + 1;
            IF claimed.single_to IS NULL OR claimed.single_to <= claimed.position THEN
                -- Which of them it was has to be found: attempts are counted anew.
                claimed.failures := 0;
                SELECT pg_catalog.max(ahead.id) INTO claimed.single_to
                  FROM (SELECT m.id FROM pgqueue_message m
                         WHERE m.topic_id = of_group.topic_id
                           AND (m.partition, m.id)
                               > (claimed.partition, claimed.position)
                           AND (m.partition, m.id) <= (claimed.partition, up_to)
                           AND m.published_at >= since
                         ORDER BY m.partition, m.id LIMIT n) ahead;
            END IF;
        END IF;
        EXIT WHEN of_group.on_error <> 'halt'
               OR claimed.failures < of_group.max_attempts;
        UPDATE pgqueue_position AS p
           SET halted_at = at, halted_for = 'error', failures = claimed.failures,
               leased_by = NULL, leased_until = NULL
         WHERE p.id = claimed.id;
    END LOOP;
    IF claimed.single_to > claimed.position THEN
        n := 1;
    END IF;
    SELECT pg_catalog.max(sized.id) INTO last
      FROM (SELECT m.id, m.size, pg_catalog.sum(m.size)
                       OVER (ORDER BY m.id ROWS UNBOUNDED PRECEDING) AS bytes
              FROM (SELECT m.id, pg_catalog.octet_length(m.payload::text)
                               + pg_catalog.octet_length(m.headers::text) AS size
                      FROM pgqueue_message m
                     WHERE m.topic_id = of_group.topic_id
                       AND (m.partition, m.id) > (claimed.partition, claimed.position)
                       AND (m.partition, m.id) <= (claimed.partition, up_to)
                       AND m.published_at >= since
                     ORDER BY m.partition, m.id LIMIT n) m) sized
     WHERE sized.bytes <= bytes_max OR sized.bytes = sized.size;
    UPDATE pgqueue_position AS p
       SET fence = claimed.fence, leased_by = reader,
           leased_until = at + pg_catalog.make_interval(secs => of_group.lease_seconds),
           last_read_at = pg_catalog.clock_timestamp(),
           failures = least(claimed.failures, 32000), single_to = claimed.single_to,
           errors = CASE WHEN claimed.has_lapsed THEN
               (CASE WHEN pg_catalog.jsonb_array_length(p.errors) >= 100
                     THEN p.errors - 1 ELSE coalesce(p.errors, '[]') END
                || pg_catalog.jsonb_build_object(
                    'kind', 'lease_expired', 'worker', p.leased_by, 'fence', p.fence,
                    'at', at, 'message',
                    'its reader died, or took longer than the lease'))
                ELSE p.errors END
     WHERE p.id = claimed.id;
    RETURN QUERY
        SELECT m.id, m.partition::integer, m.name::text, m.key::text, m.payload,
               m.headers, m.published_at,
               pg_catalog.concat_ws(' ', claimed.id, claimed.fence, last, reader)
          FROM pgqueue_message m
         WHERE m.topic_id = of_group.topic_id AND m.partition = claimed.partition
           AND m.id > claimed.position AND m.id <= last
           AND m.published_at >= since
         ORDER BY m.id;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_read(text, integer) FROM PUBLIC;
