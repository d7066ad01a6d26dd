-- Counts the jobs of a batch that is in another one among those of that one, which does
-- not end before it has, and is opened again with it.
--
-- A batch that has not ended counts as one active step more; one that was cancelled
-- with nothing left out, as one that was cancelled. The update of the one above calls
-- this for the one above that.
--
-- Locks: none that are new. Whoever changes a workflow has locked all above it, by
-- lock_workflows.sql.
CREATE OR REPLACE FUNCTION pgqueue_batch_moved() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was pgqueue_workflow;
    more_cancelled integer;
    may_end boolean;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        was := OLD;
    ELSE
        SELECT 0, 0, 0, 0, 0, 0, now() INTO was.steps, was.active, was.succeeded,
               was.skipped, was.dead, was.cancelled, was.finished_at;
    END IF;
    more_cancelled := NEW.cancelled - was.cancelled
        + (NEW.state = 'cancelled' AND NEW.dead + NEW.cancelled = 0)::int
        - (was.state IS NOT DISTINCT FROM 'cancelled'
           AND was.dead + was.cancelled = 0)::int;
    -- By itself: whoever stores a batch need not be allowed to count what succeeds.
    IF NEW.succeeded <> was.succeeded OR more_cancelled <> 0 THEN
        UPDATE pgqueue_workflow p
           SET succeeded = p.succeeded + NEW.succeeded - was.succeeded,
               cancelled = p.cancelled + more_cancelled
         WHERE p.id = NEW.parent_id;
    END IF;
    UPDATE pgqueue_workflow p
       SET steps = p.steps + NEW.steps - was.steps,
           active = p.active + NEW.active - was.active
               + (NEW.finished_at IS NULL)::int - (was.finished_at IS NULL)::int,
           skipped = p.skipped + NEW.skipped - was.skipped,
           dead = p.dead + NEW.dead - was.dead,
           finished_at = CASE WHEN p.state = 'failed' AND NEW.finished_at IS NULL
                              THEN NULL ELSE p.finished_at END,
           state = CASE WHEN p.state <> 'failed' THEN p.state
                        WHEN NEW.finished_at IS NULL THEN 'running'
                        WHEN p.dead + NEW.dead = was.dead THEN 'cancelled'
                        ELSE p.state END
     WHERE p.id = NEW.parent_id
    RETURNING p.active = 0 AND p.state = 'running' INTO may_end;
    IF may_end THEN
        PERFORM pgqueue_advance(ARRAY[NEW.parent_id], NULL, NULL, true);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_batch_moved
    AFTER INSERT OR UPDATE OF steps, active, succeeded, skipped, dead, cancelled,
                              finished_at ON pgqueue_workflow
    FOR EACH ROW WHEN (NEW.parent_id IS NOT NULL)
    EXECUTE FUNCTION pgqueue_batch_moved();
