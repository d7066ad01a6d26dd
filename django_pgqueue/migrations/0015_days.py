"""
Days: made and closed by functions that can be granted, by a clock that is trusted.

And what retention took from the back-fill of a subscription.
"""

from django.db import migrations, models

# A function that makes the partition of a day (UTC), if there is none; for roles that
# own no table, too. Made apart and attached: ATTACH takes SHARE UPDATE EXCLUSIVE on the
# parent, beside which rows are written. The advisory lock lets one at a time make days.
#
# SECURITY DEFINER: it runs as its owner, who is that of the tables. So its search_path
# is pinned, with what the caller can write to last; what it calls is named with its
# schema, since somebody may write to that of the installation; a table of that name
# which is somebody else's is not attached. Who does not have the owner's rights anyway
# gets days of the coming weeks alone. Not for everybody: whoever it is granted to.
MAKE = """
CREATE OR REPLACE FUNCTION {function}(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    parent regclass := '{parent}';
    name text := '{parent}_' || pg_catalog.to_char(day::timestamp, 'YYYYMMDD');
    today date := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::date;
    caller name := CASE pg_catalog.current_setting('role')
                        WHEN 'none' THEN session_user
                        ELSE pg_catalog.current_setting('role') END;
    schema name;
    owner oid;
    owner_there oid;
BEGIN
    IF (day < today - 1 OR day > today + {days_max})
       AND NOT pg_catalog.pg_has_role(caller, current_user, 'USAGE') THEN
        RAISE EXCEPTION 'the day % cannot be made by %: from yesterday on, days can be '
            'made {days_max} ahead', day, caller
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_catalog.pg_advisory_xact_lock(706701, 0);
    SELECT n.nspname, c.relowner INTO schema, owner
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace
     WHERE c.oid = parent;
    IF EXISTS (SELECT FROM pg_catalog.pg_inherits i
                 JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = parent AND c.relname = name) THEN
        RETURN false;
    END IF;
    SELECT c.relowner INTO owner_there
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace
     WHERE n.nspname = schema AND c.relname = name;
    IF owner_there <> owner THEN
        RAISE EXCEPTION 'the table %.% belongs to another role than %: drop or rename '
            'it', schema, name, parent USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE pg_catalog.format('CREATE TABLE IF NOT EXISTS %I.%I (LIKE %s'
                   ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', schema, name, parent);
    EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %I.%I'
                   ' FOR VALUES FROM (%L) TO (%L)', parent, schema, name,
                   day || ' 00:00+00', day + 1 || ' 00:00+00');
    RETURN true;
END $$;
"""
DAYS_MAX = 35
MAKE_ARCHIVE_DAY = MAKE.format(
    function="pgqueue_make_archive_day",
    parent="pgqueue_archived_job",
    days_max=DAYS_MAX,
)
MAKE_LOG_DAY = MAKE.format(
    function="pgqueue_make_log_day", parent="pgqueue_message", days_max=DAYS_MAX
)
MAKE_ARCHIVE_DAY_BACK = "DROP FUNCTION pgqueue_make_archive_day(date)"
MAKE_LOG_DAY_BACK = """
CREATE OR REPLACE FUNCTION pgqueue_make_log_day(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    name text := 'pgqueue_message_' || to_char(day, 'YYYYMMDD');
BEGIN
    PERFORM pg_advisory_xact_lock(706701, 0);
    IF pg_partition_root(to_regclass(name)) = 'pgqueue_message'::regclass THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %I (LIKE pgqueue_message'
                   ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    EXECUTE format('ALTER TABLE pgqueue_message ATTACH PARTITION %I'
                   ' FOR VALUES FROM (%L) TO (%L)',
                   name, day || ' 00:00+00', day + 1 || ' 00:00+00');
    RETURN true;
END $$;
GRANT EXECUTE ON FUNCTION pgqueue_make_log_day(date) TO PUBLIC;
"""

# Closes a day of the log that is over: what that means and why the id is read after the
# end of the day stands in topics/days.py. It waits for who uses the day as long as
# others may wait behind it, and no longer. As above, for roles that own no table.
CLOSE_LOG_DAY = """
CREATE OR REPLACE FUNCTION pgqueue_close_log_day(day date) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '200ms' AS $$
DECLARE
    parent regclass := 'pgqueue_message';
    name text := 'pgqueue_message_' || pg_catalog.to_char(day::timestamp, 'YYYYMMDD');
    schema name;
    highest bigint;
BEGIN
    IF NOT day < (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'the day % is not over', day
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_catalog.pg_advisory_xact_lock(706701, 0);
    IF EXISTS (SELECT FROM pgqueue_log_day d WHERE d.day = $1) THEN
        RETURN NULL;
    END IF;
    SELECT n.nspname INTO schema
      FROM pg_catalog.pg_inherits i
      JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE i.inhparent = parent AND c.relname = name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the log has no day %', day
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END
      INTO highest FROM pgqueue_message_id_seq s;
    -- There is one where the row that it stands for was deleted.
    EXECUTE pg_catalog.format('ALTER TABLE %I.%I DROP CONSTRAINT IF EXISTS %I',
                   schema, name, name || '_closed');
    EXECUTE pg_catalog.format(
        'ALTER TABLE %I.%I ADD CONSTRAINT %I CHECK (id <= %s) NOT VALID',
        schema, name, name || '_closed', highest);
    INSERT INTO pgqueue_log_day VALUES (day, highest);
    RETURN highest;
END $$;
"""
CLOSE_LOG_DAY_BACK = "DROP FUNCTION pgqueue_close_log_day(date)"

# What the caller can write to comes last, or its temporary tables would be first.
PIN = """
DO $do$ DECLARE function regprocedure; BEGIN
    FOREACH function IN ARRAY ARRAY[
        'pgqueue_make_archive_day(date)', 'pgqueue_make_log_day(date)',
        'pgqueue_close_log_day(date)']::regprocedure[]
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %s, pg_temp',
                       function, (SELECT relnamespace::regnamespace FROM pg_class
                                   WHERE oid = 'pgqueue_message'::regclass));
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function);
    END LOOP;
END $do$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("pgqueue", "0014_topics"),
    ]

    operations = [
        migrations.CreateModel(
            name="Clock",
            fields=[
                (
                    "id",
                    models.SmallIntegerField(
                        db_default=1,
                        primary_key=True,
                        serialize=False,
                        verbose_name="id",
                    ),
                ),
                ("trusted_at", models.DateTimeField(verbose_name="trusted up to")),
            ],
            options={
                "verbose_name": "trusted clock",
                "verbose_name_plural": "trusted clock",
                "db_table": "pgqueue_clock",
                "default_permissions": ("view",),
            },
        ),
        migrations.AddField(
            model_name="subscription",
            name="lost",
            field=models.JSONField(blank=True, null=True, verbose_name="lost"),
        ),
        migrations.RunSQL(MAKE_ARCHIVE_DAY, MAKE_ARCHIVE_DAY_BACK),
        migrations.RunSQL(MAKE_LOG_DAY, MAKE_LOG_DAY_BACK),
        migrations.RunSQL(CLOSE_LOG_DAY, CLOSE_LOG_DAY_BACK),
        migrations.RunSQL(PIN, migrations.RunSQL.noop),
    ]
