-- Leases the next messages of a pull queue to whoever calls; at most n, for so many
-- seconds. A receipt is the id and the delivery: pgqueue_ack(), pgqueue_nack(),
-- pgqueue_reject() and pgqueue_extend() want it, and refuse it once somebody else has
-- received the message. Who says nothing until the seconds are over loses it to others.
--
-- Called by queues/pull.py, and by whoever is not Python. It never waits: to hear of
-- messages, LISTEN to pgqueue_channel(), where '!pull:' and the queue's name is told.
--
-- Messages come by priority, then by when they have become due. Those of a lane one at a
-- time, by their ids: the next one when that before it has ended. Since no worker need
-- run, nothing promotes these lanes: this takes of each that has room its first message,
-- as claims do from fair lanes. It never has two of a lane out: who takes one holds the
-- lane's lock, and has looked after he got it, in another statement, for a message of the
-- lane that is visible (promote.sql says why that is enough). Hence READ COMMITTED, where
-- there are lanes. What is received stays visible, with the time of its lease, until it
-- has ended; so while it is out, lapsed or given back, its lane has no room.
--
-- A lease that has lapsed is a crash, as that of a worker's job, and its attempt stays
-- spent. A message that was received max_receives times and is due again goes to the dead
-- letters by the call that meets it, and one that has expired or was cancelled to the
-- archive; a call gives up after five rounds that met as many of these as it wants.
--
-- deliveries rises with each receive and is never reset: the fence. A row of a task that
-- somebody has put into this queue is nobody's: it is passed over.
--
-- Locks: row locks on the messages, until the caller's transaction ends; SKIP LOCKED: what
-- another receiver has locked is passed over. And those of pgqueue_pull_heads().
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
