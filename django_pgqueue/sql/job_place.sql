-- Parks or delays a row whoever inserts it.
--
-- Called by the trigger of the same name. Its WHEN clause is checked without calling
-- the function, so plain rows pay nothing. A time in the past means now: else a job
-- "for 1970" would overtake all others of its priority.
--
-- A job of a lane waits parked until pgqueue_promote() lets it through; lane_due_at
-- says from when on it may. An empty name is none.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_job_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.lane := nullif(NEW.lane, '');
    IF NEW.lane IS NOT NULL THEN
        NEW.visible_at := NULL;
        NEW.lane_due_at := greatest(NEW.run_after, clock_timestamp());
    ELSE
        NEW.visible_at := greatest(NEW.run_after, clock_timestamp());
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_job_place BEFORE INSERT ON pgqueue_job
    FOR EACH ROW WHEN (NEW.lane IS NOT NULL OR NEW.run_after IS NOT NULL)
    EXECUTE FUNCTION pgqueue_job_place();
