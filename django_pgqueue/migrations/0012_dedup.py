"""Dedup keys that tell callers what happened, and periods that outlive their jobs."""

from django.db import migrations, models

# The text of a key: that of its task, a blank, and its value as JSON: an object of
# parameters, or a text that the caller has named. What exceeds the column is hashed, so
# that a long key is as good as a short one; and so is an array, since people who may
# not see arguments are shown keys. jsonb's own text is one for all who write the same
# values: keys in one order, one blank after each colon and comma.
KEY = """
CREATE FUNCTION pgqueue_dedup_key(task text, by jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    whole text := $1 || ' ' || $2::text;
BEGIN
    IF length(whole) <= 255 AND jsonb_typeof($2) <> 'array' THEN
        RETURN whole;
    END IF;
    RETURN left($1, 190) || ' '
        || encode(sha256(convert_to(whole, 'UTF8')), 'hex');
END $$;
"""
KEY_BACK = "DROP FUNCTION pgqueue_dedup_key(text, jsonb)"

# Stores a job, or says who has its key. One round trip for the caller; for bulk() and
# from_queryset() one call per row, in the order of the keys. Each statement in here
# sees what others have committed until then (READ COMMITTED), so a holder that ends
# between two of them makes another round.
#
# Locks: of the key, its entry in the unique index: a second caller waits until the
# first one's transaction ends. Of a holder that waits, a row lock until the caller's
# transaction ends, FOR KEY SHARE, if in_locks: the claim passes it over until then, so
# the job that stands for this call starts after what this call commits. Callers share
# that lock, so those who meet the same holders in different orders cannot deadlock.
# A holder that runs is never locked: its ack would wait for the caller.
# A holder that has been due for ten seconds while others lock it gives up its key.
# Of a period, its row, by whoever is counted in it; a full one is only read.
#
# A replaced job that was delivered before counts as edited (pgqueue.edits), so that
# another system does not take it for the one that it has seen.
STORE = """
CREATE FUNCTION pgqueue_store_unique(
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
                -- It has been due for long. If callers lock it all the time, no claim
                -- gets it: then it goes on without its key, and this call is a job.
                BEGIN
                    PERFORM FROM pgqueue_job j WHERE j.id = holder.id FOR UPDATE NOWAIT;
                    RAISE SQLSTATE 'PGQ01';  -- Nobody has it; give the lock back.
                EXCEPTION
                    WHEN SQLSTATE 'PGQ01' THEN
                        NULL;
                    WHEN lock_not_available THEN
                        UPDATE pgqueue_job AS j SET dedup_key = NULL, queued_key = NULL
                         WHERE j.id = holder.id AND j.dedup_key = in_key
                           AND j.leased_by IS NULL;
                        CONTINUE;
                END;
            END IF;
            IF in_locks THEN
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
"""
STORE_BACK = """
DROP FUNCTION pgqueue_store_unique(
    text, text, jsonb, jsonb, jsonb, integer, integer, timestamptz, timestamptz,
    timestamptz, text, text, text, interval, interval, integer, boolean)
"""

# Jobs that went back to their queues take their keys again. Never raises for what it
# meets: an attempt has been settled by now, and its worker goes on. The later of two
# twins comes first.
#
# Locks: of each key that is free, its entry in the unique index, and a row lock on the
# job, until the statement ends. Waits in_patience for a key that somebody has taken
# and not committed; such a job is answered as 'waits', so that whoever calls may ask
# again for it alone: one that holds keys should not wait for others.
RETAKE = """
CREATE FUNCTION pgqueue_retake_keys(
    in_ids bigint[],
    in_ran boolean[],
    in_patience text,
    OUT out_id bigint,
    OUT out_outcome text,
    OUT out_holder bigint
) RETURNS SETOF record LANGUAGE plpgsql SET lock_timeout = '10ms' AS $$
#variable_conflict use_column
DECLARE
    job record;
BEGIN
    PERFORM set_config('lock_timeout', in_patience, true);
    FOR job IN
        SELECT j.id, j.queued_key AS key, back.ran
          FROM unnest(in_ids, in_ran) AS back(id, ran)
          JOIN pgqueue_job j ON j.id = back.id
         WHERE j.id = ANY(in_ids) AND j.queued_key IS NOT NULL
           AND j.dedup_key IS NULL AND j.leased_by IS NULL
           AND j.cancel_requested_at IS NULL
         ORDER BY j.queued_key COLLATE "C", j.id DESC
    LOOP
        out_id := job.id;
        FOR round IN 1..10 LOOP
            out_outcome := 'without';
            out_holder := NULL;
            BEGIN
                UPDATE pgqueue_job AS j SET dedup_key = job.key
                 WHERE j.id = job.id AND j.dedup_key IS NULL AND j.leased_by IS NULL;
                IF FOUND THEN
                    out_outcome := 'taken';
                END IF;
                EXIT;
            EXCEPTION
                WHEN unique_violation THEN
                    NULL;
                WHEN lock_not_available OR deadlock_detected THEN
                    out_outcome := 'waits';
                    EXIT;
            END;
            SELECT j.id INTO out_holder FROM pgqueue_job j WHERE j.dedup_key = job.key;
            CONTINUE WHEN NOT FOUND;
            IF job.ran THEN
                BEGIN
                    WITH gone AS (
                        DELETE FROM pgqueue_job AS j
                         WHERE j.id = job.id AND j.leased_by IS NULL
                        RETURNING j.*)
                    INSERT INTO pgqueue_archived_job (KEPT, errors, state, finished_at)
                    SELECT OF_GONE, ROOM || jsonb_build_object(
                               'kind', 'superseded', 'holder', out_holder,
                               'attempt', g.attempt, 'delivery', g.deliveries,
                               'at', statement_timestamp(),
                               'message', 'Job ' || out_holder || ' has its dedup key '
                                   'by now and does the work: this one ends here.'),
                           'cancelled', statement_timestamp()
                      FROM gone g;
                    IF FOUND THEN
                        out_outcome := 'superseded';
                    END IF;
                EXCEPTION
                    -- Somebody holds its row, or today has no partition: it runs again.
                    WHEN lock_not_available OR deadlock_detected OR check_violation THEN
                        NULL;
                END;
            END IF;
            EXIT;
        END LOOP;
        RETURN NEXT;
    END LOOP;
END $$;
"""
KEPT = (
    "id, queue, task, args, kwargs, headers, priority, run_after, enqueued_at,"
    " expires_at, attempt, max_attempts, crashes, deliveries, lane, lane_capacity,"
    " progress, workflow_id, parent_id, message_id, schedule_id, dedup_key"
)
OF_GONE = ", ".join(f"g.{name}" for name in KEPT.split(", ")[:-1]) + ", g.queued_key"
ROOM = """CASE WHEN jsonb_array_length(g.errors) >= 100
                                     THEN g.errors - 1 ELSE g.errors END"""
RETAKE = RETAKE.replace("OF_GONE", OF_GONE).replace("KEPT", KEPT).replace("ROOM", ROOM)
RETAKE_BACK = "DROP FUNCTION pgqueue_retake_keys(bigint[], boolean[], text)"

# The enqueue of other languages: where a live job has the key, its id is returned.
ENQUEUE_HEAD = """
CREATE OR REPLACE FUNCTION pgqueue_enqueue(
    task text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    priority integer DEFAULT 0,
    run_after timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT 5,
    dedup_key text DEFAULT NULL,
    headers jsonb DEFAULT '{}'
) RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
"""
ENQUEUE_BODY = """
    WITH job AS (
        SELECT stored.out_id AS id
          FROM pgqueue_store_unique(
               $4, $1, $2, $3, $10, $5, $8, $6, $7, clock_timestamp(), $9,
               CASE WHEN $9 IS NULL THEN NULL ELSE 'queued|running' END, 'skip',
               NULL, NULL, NULL, true) AS stored)
    SELECT job.id FROM job, pg_notify(pgqueue_channel(), $4)
$$;
"""
ENQUEUE_BODY_BEFORE = """
    WITH job AS (
        INSERT INTO pgqueue_job (task, args, kwargs, queue, priority, run_after,
                                 expires_at, max_attempts, dedup_key, headers)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        RETURNING id, queue)
    SELECT job.id FROM job, pg_notify(pgqueue_channel(), job.queue)
$$;
"""


def _queued_key(model: str) -> migrations.AddField:
    # Locks: ACCESS EXCLUSIVE, for a moment: a column without a default rewrites nothing.
    return migrations.AddField(
        model_name=model,
        name="queued_key",
        field=models.CharField(
            blank=True, max_length=255, null=True, verbose_name="queued key"
        ),
    )


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0011_schedule")]

    operations = [
        _queued_key("job"),
        _queued_key("deadletter"),
        migrations.CreateModel(
            name="DedupWindow",
            fields=[
                (
                    "key",
                    models.CharField(
                        max_length=255,
                        primary_key=True,
                        serialize=False,
                        verbose_name="dedup key",
                    ),
                ),
                ("until", models.DateTimeField(verbose_name="until")),
                ("jobs", models.IntegerField(verbose_name="jobs")),
                ("job_id", models.BigIntegerField(verbose_name="job")),
            ],
            options={
                "verbose_name": "dedup window",
                "verbose_name_plural": "dedup windows",
                "db_table": "pgqueue_dedup_window",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["until"], name="pgqueue_dedup_window_until")
                ],
            },
        ),
        migrations.RunSQL(KEY, KEY_BACK),
        migrations.RunSQL(STORE, STORE_BACK),
        migrations.RunSQL(RETAKE, RETAKE_BACK),
        migrations.RunSQL(
            ENQUEUE_HEAD + ENQUEUE_BODY, ENQUEUE_HEAD + ENQUEUE_BODY_BEFORE
        ),
    ]
