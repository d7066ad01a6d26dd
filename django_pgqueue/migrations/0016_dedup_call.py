"""A key that a late job has stays taken; calls that commit later are made again."""

from importlib import import_module

from django.db import migrations, models

before = import_module("django_pgqueue.migrations.0012_dedup").STORE
CREATE = "CREATE FUNCTION"
assert before.count(CREATE) == 1
BEFORE = before.replace(CREATE, "CREATE OR REPLACE FUNCTION")

# What a call in a transaction did about a holder that waits: from here to there.
start = BEFORE.index("            IF in_locks AND holder.is_late THEN\n")
end = BEFORE.index("        END IF;\n        out_id := holder.id;\n", start)

# A holder that has been due for long is not locked any more: callers without a pause
# would keep it from running for ever. The call is written down instead, in its own
# transaction, and made again after the commit (pgqueue_repeat_calls): by then the
# holder still waits, or the call stores the next job. Until then, whoever comes is told
# of the holder as before, so a key never has two jobs.
#
# Earlier calls of the key that have committed are taken back: this one, which commits
# later, stands for them; if it rolls back, they are there again. So there are hardly
# more rows than open transactions. SKIP LOCKED: nobody waits for a caller.
#
# A call that refuses (conflict => 'error') asks for nothing, and is not written down.
LATE = """
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
"""
STORE = BEFORE[:start] + LATE.removeprefix("\n") + BEFORE[end:]

# Makes calls again that were written down and have committed, without any lock on a
# holder: a job that is seen waiting now starts later than they were committed.
#
# Locks: row locks on the calls, until the statement ends; SKIP LOCKED passes over those
# that a later call of the key has taken back and not committed. Of each key that is
# free, its entry in the unique index. Waits for a key that somebody has taken and not
# committed for 10 ms: that call stays, and is tried again.
# In a random order, so that calls which stay keep no others waiting.
REPEAT = """
CREATE FUNCTION pgqueue_repeat_calls(
    in_calls integer,
    OUT out_id bigint,
    OUT out_queue text,
    OUT out_outcome text
) RETURNS SETOF record LANGUAGE plpgsql
SET search_path FROM CURRENT SET lock_timeout = '10ms' AS $$
#variable_conflict use_column
DECLARE
    call record;
BEGIN
    FOR call IN
        WITH free AS MATERIALIZED (
            SELECT * FROM pgqueue_dedup_call c
             ORDER BY random() LIMIT in_calls FOR UPDATE SKIP LOCKED)
        SELECT * FROM free ORDER BY key COLLATE "C", id
    LOOP
        out_queue := call.queue;
        BEGIN
            SELECT stored.out_id, coalesce(stored.out_conflict, 'stored')
              INTO out_id, out_outcome
              FROM pgqueue_store_unique(
                   call.queue, call.task, call.args, call.kwargs, call.headers,
                   call.priority, call.max_attempts, call.run_after, call.expires_at,
                   clock_timestamp(), call.key, call.hold, 'skip', NULL, call.period,
                   call.jobs, false) AS stored;
            DELETE FROM pgqueue_dedup_call c WHERE c.id = call.id;
        EXCEPTION
            WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
                out_id := call.holder_id;
                out_outcome := 'waits';
            WHEN OTHERS THEN
                out_id := call.holder_id;
                out_outcome := 'failed: ' || SQLERRM;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
"""
REPEAT_BACK = "DROP FUNCTION pgqueue_repeat_calls(integer)"


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0015_days")]

    operations = [
        migrations.CreateModel(
            name="DedupCall",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("key", models.CharField(max_length=255, verbose_name="dedup key")),
                ("holder_id", models.BigIntegerField(verbose_name="holder")),
                ("queue", models.CharField(max_length=63, verbose_name="queue")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                ("args", models.JSONField(verbose_name="positional arguments")),
                ("kwargs", models.JSONField(verbose_name="keyword arguments")),
                ("headers", models.JSONField(verbose_name="headers")),
                ("priority", models.SmallIntegerField(verbose_name="priority")),
                (
                    "max_attempts",
                    models.SmallIntegerField(verbose_name="maximum attempts"),
                ),
                (
                    "run_after",
                    models.DateTimeField(null=True, verbose_name="run after"),
                ),
                (
                    "expires_at",
                    models.DateTimeField(null=True, verbose_name="expires at"),
                ),
                ("hold", models.CharField(max_length=20, verbose_name="held while")),
                ("period", models.DurationField(null=True, verbose_name="period")),
                (
                    "jobs",
                    models.IntegerField(null=True, verbose_name="jobs in a period"),
                ),
            ],
            options={
                "verbose_name": "dedup call",
                "verbose_name_plural": "dedup calls",
                "db_table": "pgqueue_dedup_call",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["key"], name="pgqueue_dedup_call_key")
                ],
            },
        ),
        migrations.RunSQL(STORE, BEFORE),
        migrations.RunSQL(REPEAT, REPEAT_BACK),
    ]
