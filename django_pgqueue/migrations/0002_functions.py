"""Triggers, functions, storage parameters: what models cannot declare."""

from django.db import migrations

# Vacuum by count, not by share: the table is small when the backlog is, and every job
# leaves two or three dead rows. vacuum_truncate off: cutting the tail of the file
# needs an ACCESS EXCLUSIVE lock, which would stall claims on an emptied queue.
# fillfactor stays at 100: claims change an indexed column, so no update is HOT.
STORAGE = """
ALTER TABLE pgqueue_job SET (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
"""
STORAGE_BACK = """
ALTER TABLE pgqueue_job RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold,
    autovacuum_analyze_scale_factor, autovacuum_analyze_threshold,
    autovacuum_vacuum_cost_delay, vacuum_truncate
);
"""

# What Python or a worker could not read is refused where it is written.
SHAPES = """
ALTER TABLE pgqueue_job ADD CONSTRAINT pgqueue_job_payload_shapes CHECK (
    jsonb_typeof(args) = 'array' AND jsonb_typeof(kwargs) = 'object'
    AND jsonb_typeof(headers) = 'object' AND jsonb_typeof(errors) = 'array'
);
"""
SHAPES_BACK = "ALTER TABLE pgqueue_job DROP CONSTRAINT pgqueue_job_payload_shapes"

# Parks or delays a row whoever inserts it. The WHEN clause is checked without calling
# the function, so plain rows pay nothing. A time in the past means now: else a job
# "for 1970" would overtake all others of its priority.
TRIGGER = """
CREATE FUNCTION pgqueue_job_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.lane IS NOT NULL THEN
        NEW.visible_at := NULL;
        NEW.lane_capacity := coalesce(NEW.lane_capacity, 1);
    ELSE
        NEW.visible_at := greatest(NEW.run_after, clock_timestamp());
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER pgqueue_job_place BEFORE INSERT ON pgqueue_job
    FOR EACH ROW WHEN (NEW.lane IS NOT NULL OR NEW.run_after IS NOT NULL)
    EXECUTE FUNCTION pgqueue_job_place();
"""
TRIGGER_BACK = """
DROP TRIGGER pgqueue_job_place ON pgqueue_job;
DROP FUNCTION pgqueue_job_place();
"""

# One channel per schema, so that two installations in one database do not wake each
# other. A channel has at most 63 bytes; a longer schema name is hashed.
CHANNEL = """
CREATE FUNCTION pgqueue_channel() RETURNS text LANGUAGE sql STABLE
    SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN octet_length(n.nspname) <= 55 THEN 'pgqueue_' || n.nspname
                ELSE 'pgqueue_' || md5(n.nspname) END
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = 'pgqueue_job'::regclass
$$;
"""
CHANNEL_BACK = "DROP FUNCTION pgqueue_channel()"

# The enqueue of other languages. It notifies inside the caller's transaction, which
# serialises commits that notify; a plain INSERT does not, and is found by the poll.
ENQUEUE = """
CREATE FUNCTION pgqueue_enqueue(
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
    WITH job AS (
        INSERT INTO pgqueue_job (task, args, kwargs, queue, priority, run_after,
                                 expires_at, max_attempts, dedup_key, headers)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        RETURNING id, queue)
    SELECT job.id FROM job, pg_notify(pgqueue_channel(), job.queue)
$$;
"""
ENQUEUE_BACK = """
DROP FUNCTION pgqueue_enqueue(text, jsonb, jsonb, text, integer, timestamptz,
                              timestamptz, integer, text, jsonb)
"""

# The first half of every idempotency key. A constant in a function rather than a row
# in a table: it survives TRUNCATE and travels with a dump.
INSTALLATION = """
DO $do$ BEGIN
    EXECUTE format(
        'CREATE FUNCTION pgqueue_installation() RETURNS uuid LANGUAGE sql IMMUTABLE'
        ' AS $$ SELECT %L::uuid $$', gen_random_uuid());
END $do$;
"""
INSTALLATION_BACK = "DROP FUNCTION pgqueue_installation()"

# Today and the coming week, by the day in UTC. Later ones are made as
# queues/partitions.py says; this is the same, for an empty table.
PARTITIONS = """
DO $do$ DECLARE day date; BEGIN
    FOR day IN SELECT (now() AT TIME ZONE 'UTC')::date + n FROM generate_series(0, 7) n
    LOOP
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF pgqueue_archived_job'
            ' FOR VALUES FROM (%L) TO (%L)',
            'pgqueue_archived_job_' || to_char(day, 'YYYYMMDD'),
            day || ' 00:00+00', day + 1 || ' 00:00+00');
    END LOOP;
END $do$;
"""


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0001_initial")]

    operations = [
        migrations.RunSQL(STORAGE, STORAGE_BACK),
        migrations.RunSQL(SHAPES, SHAPES_BACK),
        migrations.RunSQL(TRIGGER, TRIGGER_BACK),
        migrations.RunSQL(CHANNEL, CHANNEL_BACK),
        migrations.RunSQL(ENQUEUE, ENQUEUE_BACK),
        migrations.RunSQL(INSTALLATION, INSTALLATION_BACK),
        # Dropped with their table.
        migrations.RunSQL(PARTITIONS, migrations.RunSQL.noop),
    ]
