"""The function that stores a plain job, with a plan that the session keeps."""

from django.db import migrations

# What delay() calls. An INSERT by itself is parsed, rewritten and planned for every
# job, since Django does not prepare statements (a pooler may give each transaction
# another session); in PL/pgSQL the plan is kept with the session, whosever it is. That
# is a quarter of what the server spends on a job. The names that the body uses are
# found by the caller's search_path, as those of an INSERT would be.
STORE = """
CREATE FUNCTION pgqueue_store(
    queue text,
    task text,
    args jsonb,
    kwargs jsonb,
    headers jsonb,
    priority integer,
    max_attempts integer
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    job_id bigint;
BEGIN
    INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    RETURNING id INTO STRICT job_id;
    RETURN job_id;
END $$;
"""
STORE_BACK = """
DROP FUNCTION pgqueue_store(text, text, jsonb, jsonb, jsonb, integer, integer)
"""


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0004_worker_async_slots")]

    operations = [migrations.RunSQL(STORE, STORE_BACK)]
