-- Stores a job, or says who has its key. One round trip for the caller; for bulk() and
-- from_queryset() one call per row, in the order of the keys. Each statement in here
-- sees what others have committed until then (READ COMMITTED), so a holder that ends
-- between two of them makes another round.
--
-- Called by queues/unique.py, pgqueue_enqueue() and pgqueue_repeat_calls().
--
-- Locks: of the key, its entry in the unique index: a second caller waits until the
-- first one's transaction ends. Of a holder that waits, a row lock until the caller's
-- transaction ends, FOR KEY SHARE, if in_locks: the claim passes it over until then, so
-- the job that stands for this call starts after what this call commits. Callers share
-- that lock, so those who meet the same holders in different orders cannot deadlock. A
-- holder that runs is never locked: its ack would wait for the caller. Of a period, its
-- row, by whoever is counted in it; a full one is only read.
--
-- A holder that has been due for ten seconds is not locked any more: callers without a
-- pause would keep it from running for ever. The call is written down instead, in its
-- own transaction, and made again after the commit (pgqueue_repeat_calls): by then the
-- holder still waits, or the call stores the next job. Until then, whoever comes is
-- told of the holder as before, so a key never has two jobs. Earlier calls of the key
-- that have committed are taken back: this one, which commits later, stands for them;
-- if it rolls back, they are there again. So there are hardly more rows than open
-- transactions. SKIP LOCKED: nobody waits for a caller. A call that refuses (conflict
-- => 'error') asks for nothing, and is not written down.
--
-- A replaced job that was delivered before counts as edited (pgqueue.edits), so that
-- another system does not take it for the one that it has seen.
CREATE OR REPLACE FUNCTION pgqueue_store_unique(
    in_queue text,
    in_task text,
    in_args jsonb,
    in_kwargs jsonb,
    in_headers jsonb,
    in_priority integer,
    in_max_attempts integer,
    in_run_after timestamptz,
    in_expires_at timestamptz,
    in_moment timestamptz,
    in_key text,
    in_hold text,
    in_conflict text,
    in_max_wait interval,
    in_period interval,
    in_jobs integer,
    in_locks boolean,
    OUT out_id bigint,
    OUT out_conflict text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    holder record;
    latest timestamptz;
BEGIN
    FOR round IN 1..100 LOOP
        IF in_period IS NOT NULL THEN
            SELECT w.job_id INTO out_id FROM pgqueue_dedup_window w
             WHERE w.key = in_key AND w.until > in_moment AND w.jobs >= in_jobs;
            IF FOUND THEN
                out_conflict := CASE WHEN in_hold IS NULL THEN 'throttled'
                                     ELSE 'skipped' END;
                RETURN;
            END IF;
        END IF;

        INSERT INTO pgqueue_job AS j (queue, task, args, kwargs, headers, priority,
                                      max_attempts, run_after, expires_at, dedup_key,
                                      queued_key)
        VALUES (in_queue, in_task, in_args, in_kwargs, in_headers, in_priority,
                in_max_attempts, in_run_after, in_expires_at,
                CASE WHEN in_hold IS NOT NULL THEN in_key END,
                CASE WHEN in_hold = 'queued' THEN in_key END)
        ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
        RETURNING j.id INTO out_id;
        IF FOUND THEN
            IF in_period IS NULL THEN
                RETURN;
            END IF;
            INSERT INTO pgqueue_dedup_window AS w (key, until, jobs, job_id)
            VALUES (in_key, in_moment + in_period, 1, out_id)
            ON CONFLICT (key) DO UPDATE
               SET until = CASE WHEN w.until > in_moment THEN w.until
                                ELSE excluded.until END,
                   jobs = CASE WHEN w.until > in_moment THEN w.jobs + 1 ELSE 1 END,
                   job_id = excluded.job_id
             WHERE w.until <= in_moment OR w.jobs < in_jobs;
            IF FOUND THEN
                RETURN;
            END IF;
            -- Somebody else's job was the last of this period meanwhile.
            DELETE FROM pgqueue_job j WHERE j.id = out_id;
            CONTINUE;
        END IF;

        IF in_conflict IN ('replace', 'debounce') THEN
            UPDATE pgqueue_job AS j
               SET args = in_args, kwargs = in_kwargs,
                   headers = in_headers
                       || coalesce((SELECT jsonb_object_agg(h.key, h.value)
                                      FROM jsonb_each(j.headers) h
                                     WHERE h.key LIKE 'pgqueue.%'), '{}')
                       || CASE WHEN j.deliveries = 0 THEN '{}'::jsonb
                          ELSE jsonb_build_object('pgqueue.edits', 1 + CASE
                              WHEN j.headers ->> 'pgqueue.edits' ~ '^[0-9]{1,9}$'
                              THEN (j.headers ->> 'pgqueue.edits')::bigint
                              ELSE 0 END) END,
                   attempt = 0, expires_at = in_expires_at,
                   run_after = CASE WHEN in_conflict = 'replace' THEN j.run_after
                       ELSE least(in_run_after, j.enqueued_at + in_max_wait) END,
                   visible_at = CASE
                       WHEN in_conflict = 'replace' OR j.visible_at IS NULL
                       THEN j.visible_at
                       ELSE greatest(in_moment, least(
                           in_run_after, j.enqueued_at + in_max_wait)) END
             WHERE j.dedup_key = in_key AND j.leased_by IS NULL
               AND (j.expires_at <= in_moment) IS NOT TRUE
            RETURNING j.id INTO out_id;
            IF FOUND THEN
                out_conflict := CASE WHEN in_conflict = 'replace' THEN 'replaced'
                                     ELSE 'debounced' END;
                RETURN;
            END IF;
        ELSIF in_conflict = 'reschedule' THEN
            UPDATE pgqueue_job AS j
               SET run_after = in_run_after,
                   visible_at = CASE WHEN j.visible_at IS NOT NULL
                                THEN greatest(in_run_after, in_moment) END
             WHERE j.dedup_key = in_key AND j.leased_by IS NULL
               AND (j.expires_at <= in_moment) IS NOT TRUE
            RETURNING j.id INTO out_id;
            IF FOUND THEN
                out_conflict := 'rescheduled';
                RETURN;
            END IF;
        END IF;

        SELECT j.id, j.leased_by IS NULL AS waits,
               j.queued_key IS NOT NULL
                   AND j.visible_at < in_moment - interval '10 s' AS is_late,
               (j.expires_at <= in_moment) IS TRUE AS is_over INTO holder
          FROM pgqueue_job j WHERE j.dedup_key = in_key;
        CONTINUE WHEN NOT FOUND;
        IF holder.waits AND holder.is_over THEN
            -- It will never run, and must not stand for a job that shall.
            UPDATE pgqueue_job AS j SET dedup_key = NULL, queued_key = NULL
             WHERE j.id = holder.id AND j.dedup_key = in_key AND j.leased_by IS NULL;
            CONTINUE;
        END IF;
        IF holder.waits THEN
            CONTINUE WHEN in_conflict NOT IN ('skip', 'error');
            IF in_locks AND holder.is_late THEN
                IF in_conflict = 'skip' THEN
                    DELETE FROM pgqueue_dedup_call WHERE id = ANY(ARRAY(
                        SELECT c.id FROM pgqueue_dedup_call c WHERE c.key = in_key
                           FOR UPDATE SKIP LOCKED));
                    INSERT INTO pgqueue_dedup_call (
                        key, holder_id, queue, task, args, kwargs, headers, priority,
                        max_attempts, run_after, expires_at, hold, period, jobs)
                    VALUES (in_key, holder.id, in_queue, in_task, in_args, in_kwargs,
                            in_headers, in_priority, in_max_attempts, in_run_after,
                            in_expires_at, in_hold, in_period, in_jobs);
                END IF;
            ELSIF in_locks THEN
                PERFORM FROM pgqueue_job j
                  WHERE j.id = holder.id AND j.dedup_key = in_key
                    AND j.leased_by IS NULL FOR KEY SHARE;
                CONTINUE WHEN NOT FOUND;
            END IF;
        END IF;
        out_id := holder.id;
        out_conflict := 'skipped';
        RETURN;
    END LOOP;
    RAISE 'dedup key "%": its holder changed too often to be found', in_key
        USING ERRCODE = 'serialization_failure';
END $$;
