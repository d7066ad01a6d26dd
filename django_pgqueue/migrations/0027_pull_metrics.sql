-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- unread.sql
CREATE OR REPLACE FUNCTION pgqueue_unread(
    in_group bigint, in_topic integer, in_bound bigint, in_since timestamptz
) RETURNS TABLE (
    partition integer, fence bigint, first_unread bigint, up_to bigint,
    is_halted boolean
) LANGUAGE plpgsql STABLE SET enable_nestloop = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH part AS MATERIALIZED (
            SELECT p.partition::integer, p.fence, p.halted_at IS NOT NULL AS is_halted,
                   coalesce(made.first_partition, p.partition)::integer AS first,
                   coalesce(made.partitions, 1)::integer AS partitions,
                   (SELECT m.id FROM pgqueue_message m
                     WHERE m.topic_id = in_topic
                       AND (m.partition, m.id) > (p.partition, p.position)
                       AND (m.partition, m.id) <= (p.partition, in_bound)
                       AND m.published_at >= in_since
                     ORDER BY m.partition, m.id LIMIT 1) AS unread
              FROM pgqueue_position p
              LEFT JOIN (
                   SELECT t.first_partition, t.partitions FROM pgqueue_topic t
                    WHERE t.id = in_topic
                    UNION ALL
                   SELECT e.first_partition, e.partitions FROM pgqueue_generation e
                    WHERE e.topic_id = in_topic) made
                ON p.partition >= made.first_partition
               AND p.partition < made.first_partition + made.partitions
             WHERE p.group_id = in_group
        ), made AS MATERIALIZED (
            SELECT DISTINCT part.first, part.partitions FROM part
        ), pair AS MATERIALIZED (
            SELECT mine.first, other.first AS other,
                   gcd(mine.partitions, other.partitions) AS shared
              FROM made mine JOIN made other ON other.first <> mine.first
        ), behind AS MATERIALIZED (
            -- The lowest unread id by the place of partitions that share keys.
            SELECT pair.first, pair.other, (part.partition - part.first) % pair.shared
                       AS place, min(part.unread) AS low
              FROM pair JOIN part ON part.first = pair.other
             WHERE part.unread IS NOT NULL GROUP BY 1, 2, 3
        )
        SELECT part.partition, part.fence, part.unread,
               least(in_bound, min(behind.low) - 1), part.is_halted
          FROM part
          LEFT JOIN pair ON pair.first = part.first
          LEFT JOIN behind
            ON behind.first = pair.first AND behind.other = pair.other
           AND behind.place = (part.partition - part.first) % pair.shared
         GROUP BY part.partition, part.fence, part.unread, part.is_halted;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_unread(bigint, integer, bigint, timestamptz)
    FROM PUBLIC;

-- read.sql
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
    -- Up to the first day that some partition has not read, as log/closed_days.py.
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

-- pull_receipts.sql
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

-- pull_answer.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_answer(
    in_ids bigint[], in_deliveries integer[], in_done bigint[]
) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- Without a query: of most calls none is stale.
    IF cardinality(in_done) = cardinality(in_ids) THEN
        RETURN jsonb_build_object('done', cardinality(in_done), 'stale', '[]'::jsonb);
    END IF;
    RETURN jsonb_build_object(
        'done', coalesce(cardinality(in_done), 0),
        'stale', coalesce((
            SELECT jsonb_agg(asked.id || ':' || asked.delivery)
              FROM unnest(in_ids, in_deliveries) AS asked(id, delivery)
             WHERE asked.id <> ALL(coalesce(in_done, '{}'))), '[]'));
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_answer(bigint[], integer[], bigint[])
    FROM PUBLIC;

-- pull_archive.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_archive(
    in_ids bigint[], in_deliveries integer[], in_state text, in_held boolean,
    OUT done bigint[], OUT queues text[]
) LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    today date := (statement_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    IF to_regclass('pgqueue_archived_job_' || to_char(today, 'YYYYMMDD')) IS NULL THEN
        PERFORM pgqueue_make_archive_day(today);
    END IF;
    WITH gone AS (
        DELETE FROM pgqueue_job AS j
         USING unnest(in_ids, in_deliveries) AS ended(id, delivery)
         WHERE j.id = ended.id AND j.deliveries = ended.delivery
           AND j.task = 'pgqueue.pull' AND (j.leased_by IS NOT NULL OR NOT in_held)
        RETURNING j.*),
    kept AS (
        INSERT INTO pgqueue_archived_job (
                    id, queue, task, args, kwargs, headers, priority, run_after,
                    enqueued_at, expires_at, attempt, max_attempts, crashes, deliveries,
                    dedup_key, accumulate_key, lane, lane_capacity, lane_spacing,
                    lane_burst, lane_policy, progress, workflow_id, parent_id,
                    message_id, schedule_id,
                    errors, state, started_at, finished_at, worker)
        SELECT id, queue, task, args, kwargs, headers, priority, run_after,
                    enqueued_at, expires_at, attempt, max_attempts, crashes, deliveries,
                    dedup_key, accumulate_key, lane, lane_capacity, lane_spacing,
                    lane_burst, lane_policy, progress, workflow_id, parent_id,
                    message_id, schedule_id,
               errors, in_state, leased_at, statement_timestamp(), leased_by
          FROM gone),
    counted AS (
        INSERT INTO pgqueue_pull_end (queues, outcome, waits, runs)
        SELECT array_agg(queue), in_state,
               array_agg(date_part('epoch', CASE
                   WHEN in_held THEN leased_at - coalesce(run_after, enqueued_at)
                   ELSE statement_timestamp() - coalesce(lane_due_at, visible_at)
                   END)::real),
               array_agg(CASE WHEN in_held THEN date_part(
                   'epoch', statement_timestamp() - leased_at)::real END)
          FROM gone HAVING count(*) > 0)
    SELECT array_agg(id), array_agg(DISTINCT queue) FILTER (WHERE lane IS NOT NULL)
      INTO done, queues FROM gone;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_archive(bigint[], integer[], text, boolean)
    FROM PUBLIC;

-- pull_bury.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_bury(
    in_ids bigint[], in_deliveries integer[], in_reason text, in_kind text,
    in_message text, in_held boolean, OUT done bigint[], OUT queues text[]
) LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    WITH gone AS (
        DELETE FROM pgqueue_job AS j
         USING unnest(in_ids, in_deliveries) AS ended(id, delivery)
         WHERE j.id = ended.id AND j.deliveries = ended.delivery
           AND j.task = 'pgqueue.pull' AND (j.leased_by IS NOT NULL OR NOT in_held)
        RETURNING j.*),
    kept AS (
        INSERT INTO pgqueue_dead_letter (
                    id, queue, task, args, kwargs, headers, priority, run_after,
                    enqueued_at, expires_at, attempt, max_attempts, crashes, deliveries,
                    dedup_key, accumulate_key, lane, lane_capacity, lane_spacing,
                    lane_burst, lane_policy, progress, workflow_id, parent_id,
                    message_id, schedule_id,
                    queued_key, errors, reason, started_at, finished_at, worker)
        SELECT id, queue, task, args, kwargs, headers, priority, run_after,
                    enqueued_at, expires_at, attempt, max_attempts, crashes, deliveries,
                    dedup_key, accumulate_key, lane, lane_capacity, lane_spacing,
                    lane_burst, lane_policy, progress, workflow_id, parent_id,
                    message_id, schedule_id,
               queued_key,
               CASE WHEN in_kind IS NULL THEN errors
                    ELSE pgqueue_pull_errors(errors, in_kind, in_message, leased_by,
                                             attempt, deliveries) END,
               in_reason, leased_at, statement_timestamp(), leased_by
          FROM gone),
    counted AS (
        INSERT INTO pgqueue_pull_end (queues, outcome, waits, runs)
        SELECT array_agg(queue), 'dead',
               array_agg(date_part('epoch', CASE
                   WHEN in_held THEN leased_at - coalesce(run_after, enqueued_at)
                   ELSE statement_timestamp() - coalesce(lane_due_at, visible_at)
                   END)::real),
               array_agg(CASE WHEN in_held THEN date_part(
                   'epoch', statement_timestamp() - leased_at)::real END)
          FROM gone HAVING count(*) > 0)
    SELECT array_agg(id), array_agg(DISTINCT queue) FILTER (WHERE lane IS NOT NULL)
      INTO done, queues FROM gone;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_bury(
    bigint[], integer[], text, text, text, boolean) FROM PUBLIC;

-- nack.sql
CREATE OR REPLACE FUNCTION pgqueue_nack(
    receipts text,
    delay_seconds float8 DEFAULT 0,
    error text DEFAULT NULL,
    wakes boolean DEFAULT true
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    ours record;
    back record;
    buried bigint[];
    their_queues text[];
BEGIN
    IF ($2 BETWEEN 0 AND 31622400) IS NOT TRUE THEN
        RAISE 'delay_seconds is %: it is from 0 to 31622400 (366 days)', $2
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO ours FROM pgqueue_pull_receipts($1);
    WITH given AS (
        UPDATE pgqueue_job AS j
           SET visible_at = statement_timestamp() + make_interval(secs => $2),
               leased_by = NULL, leased_at = NULL,
               errors = CASE WHEN $3 IS NULL THEN j.errors
                             ELSE pgqueue_pull_errors(j.errors, 'error', $3, j.leased_by,
                                                      j.attempt, j.deliveries) END
          FROM unnest(ours.ids, ours.deliveries) AS held(id, delivery)
          -- As it was received: what is returned of j is what was written.
          JOIN pgqueue_job AS o ON o.id = held.id AND o.deliveries = held.delivery
         WHERE j.id = held.id AND j.deliveries = held.delivery AND j.leased_by IS NOT NULL
           AND j.task = 'pgqueue.pull' AND j.attempt < j.max_attempts
        RETURNING j.id, j.queue, o.leased_at,
                  o.leased_at - coalesce(o.run_after, o.enqueued_at) AS waited),
    counted AS (
        INSERT INTO pgqueue_pull_end (queues, outcome, waits, runs)
        SELECT array_agg(queue), 'retried', array_agg(date_part('epoch', waited)::real),
               array_agg(
                   date_part('epoch', statement_timestamp() - leased_at)::real)
          FROM given HAVING count(*) > 0)
    SELECT coalesce(array_agg(id), '{}') AS done, array_agg(DISTINCT queue) AS queues
      INTO back FROM given;
    IF cardinality(back.done) < cardinality(ours.ids) THEN
        SELECT done, queues INTO buried, their_queues FROM pgqueue_pull_bury(
            ours.ids, ours.deliveries, 'exhausted',
            CASE WHEN $3 IS NOT NULL THEN 'error' END, $3, true);
    END IF;
    IF wakes THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || queue)
           FROM (SELECT unnest(back.queues) UNION SELECT unnest(their_queues)) told(queue);
    END IF;
    RETURN pgqueue_pull_answer(ours.ids, ours.deliveries, back.done || buried)
        || jsonb_build_object('dead', coalesce(cardinality(buried), 0));
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_nack(text, float8, text, boolean) FROM PUBLIC;

-- receive.sql
CREATE OR REPLACE FUNCTION pgqueue_receive(
    queue text,
    n integer DEFAULT 1,
    visibility_seconds float8 DEFAULT NULL,
    receiver text DEFAULT NULL
) RETURNS TABLE (
    receipt text, id bigint, deliveries integer, payload jsonb, headers jsonb, lane text,
    sent_at timestamptz, received_at timestamptz
) LANGUAGE plpgsql SECURITY DEFINER
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET enable_hashjoin = off
    SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    asked text := $1;
    most integer := $2;
    lasts interval;
    who text := left(coalesce(nullif($4, ''), session_user), 100);
    said record;
    has_lanes boolean;
    heads bigint[];
    wanted integer;
    level smallint;
    met record;
    ids bigint[];
    dues timestamptz[];
    delivered integer[];
    ends text[];
    ending text;
    count integer;
BEGIN
    SELECT * INTO said FROM pgqueue_pull_queue($1);
    IF (most BETWEEN 1 AND 1000) IS NOT TRUE THEN
        RAISE 'n is %: it is from 1 to 1000 messages', most
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $3 NOT BETWEEN 1 AND 43200 THEN
        RAISE 'visibility_seconds is %: it is from 1 to 43200 (12 hours)', $3
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF said.is_paused THEN
        RETURN;
    END IF;
    lasts := make_interval(secs => coalesce($3, said.visibility_seconds));
    FOR round IN 1..5 LOOP
        ids := '{}';
        dues := '{}';
        delivered := '{}';
        ends := '{}';
        wanted := most;
        level := NULL;
        has_lanes := (
            SELECT j.id FROM pgqueue_job j
             WHERE (j.queue, hashtextextended(j.lane, 0))
                   >= (asked, -9223372036854775808)
               AND j.queue <= asked AND j.visible_at IS NULL AND j.task = 'pgqueue.pull'
             ORDER BY j.queue, hashtextextended(j.lane, 0), j.lane, j.id LIMIT 1)
            IS NOT NULL;
        IF has_lanes AND current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE 'pgqueue_receive() needs READ COMMITTED where messages have lanes, and '
                'this transaction is %', current_setting('transaction_isolation')
                USING ERRCODE = 'active_sql_transaction';
        END IF;
        -- First of lanes, then of what is visible, one priority after the other.
        LOOP
            IF has_lanes THEN
                has_lanes := false;
                heads := pgqueue_pull_heads(asked, wanted);
                SELECT array_agg(head.id) AS ids, array_agg(head.lane_due_at) AS dues,
                       array_agg(head.deliveries) AS delivered,
                       array_agg(head.ends) AS ends INTO met
                  FROM (SELECT j.id, j.lane_due_at, j.deliveries,
                               CASE WHEN j.expires_at <= statement_timestamp()
                                    THEN 'expired'
                                    WHEN j.attempt >= j.max_attempts
                                    THEN 'exhausted' END AS ends
                          FROM pgqueue_job j
                         WHERE j.id = ANY(heads)
                           AND num_nonnulls(j.lane_due_at) = 1
                           AND (SELECT o.id FROM pgqueue_job o
                                 WHERE (o.lane, coalesce(o.promotion, 0)) >= (j.lane, 0)
                                   AND o.lane <= j.lane AND o.visible_at IS NOT NULL
                                 ORDER BY o.lane, coalesce(o.promotion, 0) LIMIT 1)
                               IS NULL
                           FOR UPDATE OF j SKIP LOCKED) head;
            ELSE
                level := (SELECT j.priority FROM pgqueue_job j
                           WHERE j.queue = asked AND j.priority < coalesce(level, 32767)
                           ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1);
                EXIT WHEN level IS NULL;
                SELECT array_agg(due.id) AS ids, array_agg(due.visible_at) AS dues,
                       array_agg(due.deliveries) AS delivered,
                       array_agg(due.ends) AS ends INTO met
                  FROM (SELECT j.id, j.visible_at, j.deliveries,
                               CASE WHEN j.cancel_requested_at IS NOT NULL
                                    THEN 'cancelled'
                                    WHEN j.expires_at <= statement_timestamp()
                                    THEN 'expired'
                                    WHEN j.attempt >= j.max_attempts
                                    THEN CASE WHEN j.leased_by IS NULL THEN 'exhausted'
                                              ELSE 'lease_expired' END END AS ends
                          FROM pgqueue_job j
                         WHERE j.queue = asked AND j.priority = level
                           AND j.visible_at <= statement_timestamp()
                           AND j.task = 'pgqueue.pull'
                         ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT wanted
                           FOR UPDATE SKIP LOCKED) due;
            END IF;
            ids := ids || met.ids;
            dues := dues || met.dues;
            delivered := delivered || met.delivered;
            ends := ends || met.ends;
            wanted := wanted - coalesce(num_nulls(VARIADIC met.ends), 0);
            EXIT WHEN wanted <= 0;
        END LOOP;
        RETURN QUERY
        WITH leased AS (
            UPDATE pgqueue_job AS j
               SET visible_at = statement_timestamp() + lasts, lane_due_at = NULL,
                   promotion = CASE WHEN j.lane IS NOT NULL
                                    THEN coalesce(j.promotion, 0) END,
                   leased_by = who, leased_at = statement_timestamp(),
                   -- Since when it was due: its end is counted with how long it waited.
                   run_after = CASE
                       WHEN num_nonnulls(j.run_after, nullif(j.deliveries, 0)) > 0
                       THEN chosen.due_at END,
                   attempt = least(j.attempt, 32766) + 1,
                   deliveries = least(j.deliveries, 999999998) + 1,
                   crashes = CASE WHEN j.leased_by IS NULL THEN j.crashes
                                  ELSE least(j.crashes, 32766) + 1 END,
                   errors = CASE WHEN j.leased_by IS NULL THEN j.errors
                       ELSE pgqueue_pull_errors(
                           j.errors, 'lease_expired', 'Its time was over, and its '
                           'receiver had neither acked nor extended it.',
                           j.leased_by, j.attempt, j.deliveries) END
              FROM unnest(ids, dues, ends) AS chosen(id, due_at, ends)
             WHERE j.id = chosen.id AND chosen.ends IS NULL
            RETURNING j.id, j.deliveries, j.args -> 0 AS payload, j.headers, j.lane,
                      j.enqueued_at, j.leased_at, j.priority, chosen.due_at)
        SELECT l.id || ':' || l.deliveries, l.id, l.deliveries, l.payload, l.headers,
               substr(l.lane, 14 + strpos(substr(l.lane, 14), ':')), l.enqueued_at,
               l.leased_at
          FROM leased l ORDER BY l.priority DESC, l.due_at;
        GET DIAGNOSTICS count = ROW_COUNT;
        most := most - count;
        EXIT WHEN count = cardinality(ids);
        FOREACH ending IN ARRAY ARRAY(
            SELECT DISTINCT gone.ends FROM unnest(ends) AS gone(ends)
             WHERE gone.ends IS NOT NULL)
        LOOP
            SELECT array_agg(gone.id) AS ids, array_agg(gone.delivery) AS delivered
              INTO met
              FROM unnest(ids, delivered, ends) AS gone(id, delivery, ends)
             WHERE gone.ends = ending;
            IF ending IN ('cancelled', 'expired') THEN
                PERFORM pgqueue_pull_archive(met.ids, met.delivered, ending, false);
            ELSE
                PERFORM pgqueue_pull_bury(
                    met.ids, met.delivered, ending,
                    CASE WHEN ending = 'lease_expired' THEN ending END,
                    'Its time was over, as often as it may be received.', false);
            END IF;
        END LOOP;
        EXIT WHEN most = 0;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_receive(text, integer, float8, text) FROM PUBLIC;

-- pins.sql
DO $do$
DECLARE
    home regnamespace := (SELECT c.relnamespace FROM pg_catalog.pg_class c
                           WHERE c.oid = 'pgqueue_job'::regclass);
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid FROM pg_catalog.pg_proc p
         WHERE p.pronamespace = home AND p.proname IN (
               'pgqueue_ack', 'pgqueue_add_steps', 'pgqueue_advance',
               'pgqueue_batch_moved', 'pgqueue_batches_in', 'pgqueue_begin_publish',
               'pgqueue_capture', 'pgqueue_capture_less', 'pgqueue_channel',
               'pgqueue_check_send', 'pgqueue_close_log_day', 'pgqueue_close_workflow',
               'pgqueue_commit_position', 'pgqueue_compensate',
               'pgqueue_declare_queue', 'pgqueue_dedup_key', 'pgqueue_due_in',
               'pgqueue_enqueue', 'pgqueue_extend', 'pgqueue_failure_of',
               'pgqueue_horizons', 'pgqueue_inbox', 'pgqueue_insert_steps',
               'pgqueue_installation', 'pgqueue_job_place', 'pgqueue_jobs_gone',
               'pgqueue_letters_gone', 'pgqueue_lock_workflows',
               'pgqueue_make_archive_day', 'pgqueue_make_log_day', 'pgqueue_meets',
               'pgqueue_message_lane', 'pgqueue_nack', 'pgqueue_pattern_selects',
               'pgqueue_patterns_of', 'pgqueue_promote', 'pgqueue_publish',
               'pgqueue_pull_answer', 'pgqueue_pull_archive', 'pgqueue_pull_bury',
               'pgqueue_pull_errors', 'pgqueue_pull_heads', 'pgqueue_pull_lane',
               'pgqueue_pull_queue', 'pgqueue_pull_receipts', 'pgqueue_read',
               'pgqueue_receive', 'pgqueue_reject', 'pgqueue_repeat_calls',
               'pgqueue_restart_workflow', 'pgqueue_results_of', 'pgqueue_retake_keys',
               'pgqueue_schedule_messages', 'pgqueue_send', 'pgqueue_send_many',
               'pgqueue_start_steps', 'pgqueue_start_workflow', 'pgqueue_steps_ended',
               'pgqueue_store', 'pgqueue_store_message', 'pgqueue_store_messages',
               'pgqueue_store_steps', 'pgqueue_store_unique', 'pgqueue_turns',
               'pgqueue_unread', 'pgqueue_watch')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
