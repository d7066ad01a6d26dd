-- Tells workflows of jobs that leave their table, whoever deletes them.
--
-- A trigger of the statement, which sees all rows at once: a settle writes up to 1,000
-- outcomes. Jobs of no workflow cost it a microsecond each.
--
-- Locks: none, where no job is of a workflow; else as steps_ended.sql.
CREATE OR REPLACE FUNCTION pgqueue_jobs_gone() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ended bigint[];
    acked bigint[];
BEGIN
    SELECT array_agg(gone.id),
           array_agg(gone.id) FILTER (WHERE gone.leased_by IS NOT NULL)
      INTO ended, acked FROM gone WHERE gone.workflow_id IS NOT NULL;
    IF ended IS NOT NULL THEN
        PERFORM pgqueue_steps_ended(ended, acked);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_jobs_gone AFTER DELETE ON pgqueue_job
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_jobs_gone();
