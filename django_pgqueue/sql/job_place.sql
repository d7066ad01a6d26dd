-- Parks or delays a row whoever inserts it.
--
-- Called by the trigger of the same name. Its WHEN clause is checked without calling
-- the function, so plain rows pay nothing. A time in the past means now: else a job
-- "for 1970" would overtake all others of its priority.
--
-- A job of a lane waits parked until pgqueue_promote() lets it through; lane_due_at
-- says from when on it may. An empty name is none. What a rate is made of is refused
-- here when it is out of range: a promotion takes many lanes, and must not fail for one.
-- A fair lane is none that others wait in: its capacity says that, as a limit's does.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_job_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.lane := nullif(NEW.lane, '');
    IF NEW.lane IS NOT NULL THEN
        NEW.visible_at := NULL;
        NEW.lane_due_at := greatest(NEW.run_after, clock_timestamp());
        IF NOT NEW.lane_spacing BETWEEN 0.000001 AND 2678400
           OR NOT NEW.lane_burst BETWEEN 1 AND 100000 THEN
            RAISE 'pgqueue_job refuses lane_spacing %, lane_burst %: the one is from '
                '0.000001 to 2678400 seconds, the other from 1 to 100000 '
                '(pgqueue_job_lane_has_rate).',
                NEW.lane_spacing, NEW.lane_burst
                USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                      CONSTRAINT = 'pgqueue_job_lane_has_rate',
                      HINT = 'Without lane_spacing it has no rate; without lane_burst '
                          'its burst is 1.';
        END IF;
        IF NEW.lane_policy NOT IN ('skip', 'dead-letter', 'fair') THEN
            RAISE 'pgqueue_job refuses lane_policy %: it is skip or dead-letter of a '
                'group, or fair (pgqueue_job_lane_policy).', NEW.lane_policy
                USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                      CONSTRAINT = 'pgqueue_job_lane_policy',
                      HINT = 'Without lane_policy, jobs of a group wait for one that '
                          'fails.';
        END IF;
        IF NEW.lane_policy = 'fair' THEN
            NEW.lane_capacity := coalesce(NEW.lane_capacity, 100000);
        END IF;
    ELSE
        NEW.visible_at := greatest(NEW.run_after, clock_timestamp());
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_job_place BEFORE INSERT ON pgqueue_job
    FOR EACH ROW WHEN (NEW.lane IS NOT NULL OR NEW.run_after IS NOT NULL)
    EXECUTE FUNCTION pgqueue_job_place();
