-- Looks for what is wrong, and says what has changed since the last look.
--
-- Called by whoever has a clock: pg_cron, the leader of the workers once a minute, or
-- `manage.py pgqueue watch`. It needs no worker, so it tells of it when all are dead.
--
-- What is wrong is an alert, with a row in pgqueue_alert. That it begins, that its count
-- has become ten times what was said last, and that it ends, is said once each: into
-- PostgreSQL's log (WARNING; LOG for an end), in the rows that come back, and by one
-- NOTIFY, '!alert', after which pgqueue_alert has the details. Names, counts and classes
-- of errors are said, never what an error or a job says.
--
-- Of each band, the oldest rows are looked at, so that a look costs the same in any
-- table. A queue or task that is paused waits on purpose. That a lease of a message has
-- lapsed is no alert: receivers of pull queues give up so. Of more than in_limit changes
-- the log has the number.
--
-- Locks: an advisory lock, until the transaction ends; while somebody else looks, a call
-- returns at once. Row locks on the alerts that have changed.
CREATE OR REPLACE FUNCTION pgqueue_watch(
    in_waits interval DEFAULT '5 min',
    in_lapsed interval DEFAULT '1 min',
    in_fresh interval DEFAULT '15 min',
    in_kept interval DEFAULT '7 days',
    in_limit integer DEFAULT 20
) RETURNS TABLE (
    kind text, subject text, change text, count integer, detail text, since timestamptz
) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
    said record;
    more integer := 0;
    spoken integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(706708, 'pgqueue_job'::regclass::oid::integer) THEN
        RETURN;
    END IF;
    moment := clock_timestamp();
    FOR said IN
    WITH RECURSIVE band(queue, priority) AS (
        (SELECT j.queue, j.priority FROM pgqueue_job j
          ORDER BY j.queue, j.priority DESC LIMIT 1)
        UNION ALL
        SELECT next.queue, next.priority FROM band CROSS JOIN LATERAL (
              (SELECT j.queue, j.priority FROM pgqueue_job j
                WHERE j.queue = band.queue AND j.priority < band.priority
                ORDER BY j.queue, j.priority DESC LIMIT 1)
               UNION ALL
              (SELECT j.queue, j.priority FROM pgqueue_job j
                WHERE j.queue > band.queue
                ORDER BY j.queue, j.priority DESC LIMIT 1)
               LIMIT 1) next),
    due AS MATERIALIZED (
        SELECT old.queue, old.task = 'pgqueue.pull' AS is_pull,
               old.leased_by IS NOT NULL AND old.task <> 'pgqueue.pull' AS is_leased,
               moment - old.visible_at AS age
          FROM band
         CROSS JOIN LATERAL (
               SELECT j.queue, j.task, j.leased_by, j.visible_at FROM pgqueue_job j
                WHERE j.queue = band.queue AND j.priority = band.priority
                  AND j.visible_at <= moment - least(in_lapsed, in_waits)
                ORDER BY j.visible_at LIMIT 100) old
         WHERE NOT EXISTS (
               SELECT FROM pgqueue_queue q
                WHERE q.name = old.queue AND q.paused_at IS NOT NULL
                  AND coalesce(q.paused_until > moment, true))
           AND NOT EXISTS (
               SELECT FROM pgqueue_lane l
                WHERE l.name = old.task AND l.paused_at IS NOT NULL
                  AND coalesce(l.paused_until > moment, true))),
    live AS MATERIALIZED (
        SELECT w.queues FROM pgqueue_worker w
         WHERE w.heartbeat_at > moment - interval '1 min'),
    dead AS MATERIALIZED (
        SELECT d.task, d.reason, d.finished_at,
               coalesce(d.errors -> -1 ->> 'type', d.errors -> -1 ->> 'kind') AS class
          FROM pgqueue_dead_letter d
         WHERE d.finished_at > moment - in_fresh
         ORDER BY d.finished_at DESC LIMIT 1000),
    found(kind, subject, count, detail) AS MATERIALIZED (
        SELECT 'lapsed_leases', d.queue, count(*)::integer,
               format('leases of %s jobs ran out, and nobody has taken these; the first '
                      '%s ago', count(*), date_trunc('second', max(d.age)))
          FROM due d WHERE d.is_leased AND d.age > in_lapsed GROUP BY d.queue
        UNION ALL
        SELECT 'unclaimed_jobs', d.queue, count(*)::integer,
               format(CASE WHEN bool_and(d.is_pull)
                           THEN '%s messages have been due for more than %s, the first '
                                'for %s: nobody receives them'
                           ELSE '%s jobs have been due for more than %s, the first for '
                                '%s; %s living workers serve the queue' END,
                      count(*), in_waits, date_trunc('second', max(d.age)),
                      (SELECT count(*) FROM live
                        WHERE live.queues = '[]' OR live.queues ? d.queue))
          FROM due d WHERE NOT d.is_leased AND d.age > in_waits GROUP BY d.queue
        UNION ALL
        SELECT 'new_dead_letters', d.task, count(*)::integer,
               format('%s jobs gave up within %s, the last as %s%s', count(*), in_fresh,
                      (array_agg(d.reason ORDER BY d.finished_at DESC))[1],
                      coalesce(': ' || (array_agg(d.class ORDER BY d.finished_at DESC))[1],
                               ''))
          FROM dead d GROUP BY d.task
        UNION ALL
       (SELECT 'silent_schedules', s.name, 1,
               CASE WHEN s.error IS NOT NULL THEN 'its ticks cannot be issued'
                    ELSE format('a tick has been due since %s, and no worker has issued '
                                'it', s.next_tick) END
          FROM pgqueue_schedule s
         WHERE s.paused_at IS NULL AND s.withdrawn_at IS NULL
           AND (s.error IS NOT NULL OR s.next_tick < moment - in_lapsed)
         ORDER BY s.name LIMIT 100)
        UNION ALL
        SELECT 'halted_groups', left(g.topic || '/' || g.name, 275), count(*)::integer,
               format('%s partitions have halted (%s), the first since %s', count(*),
                      string_agg(DISTINCT p.halted_for, ', '), min(p.halted_at))
          FROM pgqueue_consumer_group g JOIN pgqueue_position p ON p.group_id = g.id
         WHERE p.halted_at IS NOT NULL GROUP BY g.topic, g.name
        UNION ALL
        SELECT 'stuck_sagas', w.name, count(*)::integer,
               format('%s sagas do not get on with undoing, since a compensation is '
                      'dead; the first is saga %s', count(*), min(w.id))
          FROM (SELECT w.id, w.name FROM pgqueue_workflow w
                 WHERE w.state = 'compensating' ORDER BY w.id LIMIT 1000) w
         CROSS JOIN LATERAL (
               SELECT FROM pgqueue_step s
                WHERE s.workflow_id BETWEEN w.id AND w.id AND s.kind = 'compensation'
                  AND s.state = 'dead'
                ORDER BY s.workflow_id, s.id LIMIT 1) s
         GROUP BY w.name),
    standing AS (
        INSERT INTO pgqueue_alert AS a
               (name, kind, subject, count, detail, began_at, said_at, said_count)
        SELECT f.kind || ':' || f.subject, f.kind, f.subject, f.count, f.detail, moment,
               moment, f.count
          FROM found f ORDER BY 1
        ON CONFLICT (name) DO UPDATE
           SET count = EXCLUDED.count, detail = EXCLUDED.detail, ended_at = NULL,
               began_at = CASE WHEN a.ended_at IS NULL THEN a.began_at
                               ELSE moment END,
               said_at = CASE WHEN a.ended_at IS NULL
                                   AND EXCLUDED.count < a.said_count * 10
                              THEN a.said_at ELSE moment END,
               said_count = CASE WHEN a.ended_at IS NULL
                                      AND EXCLUDED.count < a.said_count * 10
                                 THEN a.said_count ELSE EXCLUDED.count END
        RETURNING a.kind, a.subject, a.count, a.detail, a.began_at, a.said_at),
    over AS (
        UPDATE pgqueue_alert a SET ended_at = moment, said_at = moment
         WHERE a.ended_at IS NULL
           AND a.name <> ALL(ARRAY(SELECT f.kind || ':' || f.subject FROM found f))
        RETURNING a.kind, a.subject, a.count, a.detail, a.began_at),
    forgotten AS (
        DELETE FROM pgqueue_alert a
         WHERE a.name = ANY(ARRAY(
               SELECT old.name FROM pgqueue_alert old
                WHERE old.said_at < moment - in_kept AND old.ended_at IS NOT NULL
                ORDER BY old.said_at LIMIT 1000))
           AND a.name <> ALL(ARRAY(SELECT f.kind || ':' || f.subject FROM found f)))
    SELECT s.kind, s.subject, s.count, s.detail, s.began_at,
           CASE WHEN s.began_at = moment THEN 'begins' ELSE 'grows' END AS change
      FROM standing s WHERE s.said_at = moment
    UNION ALL
    SELECT o.kind, o.subject, o.count, o.detail, o.began_at, 'ends' FROM over o
     ORDER BY 6, 1, 2
    LOOP
        spoken := spoken + 1;
        IF spoken > in_limit THEN
            more := more + 1;
        ELSIF said.change = 'ends' THEN
            RAISE LOG 'pgqueue: % of % is over, after %', said.kind, said.subject,
                date_trunc('second', moment - said.began_at);
        ELSE
            RAISE WARNING 'pgqueue: % of %: %', said.kind, said.subject, said.detail;
        END IF;
        kind := said.kind;
        subject := said.subject;
        change := said.change;
        count := said.count;
        detail := said.detail;
        since := said.began_at;
        RETURN NEXT;
    END LOOP;
    IF more > 0 THEN
        RAISE WARNING 'pgqueue: % more alerts have changed: see pgqueue_alert', more;
    END IF;
    IF spoken > 0 THEN
        PERFORM pg_notify(pgqueue_channel(), '!alert');
    END IF;
END $$;
