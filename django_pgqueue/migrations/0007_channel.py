"""The channel of NOTIFY without a query of the catalog's tables."""

from django.db import migrations

# The same answer as before. That one joined two tables of the catalog, and the first
# such query of a session reads what the planner wants to know about both: three
# quarters of a millisecond, for each request where a connection lives no longer. This
# function finds the names in the caches that every session has anyway.
CHANNEL = """
CREATE OR REPLACE FUNCTION pgqueue_channel() RETURNS text LANGUAGE plpgsql STABLE
    SET search_path FROM CURRENT AS $$
DECLARE
    -- Of a table: its schema, then its name, both unquoted.
    names text[] := (pg_catalog.pg_identify_object_as_address(
        'pg_catalog.pg_class'::regclass, 'pgqueue_job'::regclass, 0)).object_names;
BEGIN
    RETURN 'pgqueue_' || CASE WHEN octet_length(names[1]) <= 55 THEN names[1]
                              ELSE md5(names[1]) END;
END $$;
"""
CHANNEL_BACK = """
CREATE OR REPLACE FUNCTION pgqueue_channel() RETURNS text LANGUAGE sql STABLE
    SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN octet_length(n.nspname) <= 55 THEN 'pgqueue_' || n.nspname
                ELSE 'pgqueue_' || md5(n.nspname) END
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = 'pgqueue_job'::regclass
$$;
"""


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0006_one_check")]

    operations = [migrations.RunSQL(CHANNEL, CHANNEL_BACK)]
