-- Says what holds in a pull queue; refuses one that is none.
--
-- Called by pgqueue_send(), pgqueue_send_many() and pgqueue_receive().
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_pull_queue(
    in_queue text,
    OUT visibility_seconds float8,
    OUT max_receives integer,
    OUT is_paused boolean
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_kind text;
BEGIN
    SELECT q.kind, coalesce(q.visibility_seconds, 30), coalesce(q.max_receives, 5),
           q.paused_at IS NOT NULL
           AND coalesce(q.paused_until > statement_timestamp(), true)
      INTO found_kind, visibility_seconds, max_receives, is_paused
      FROM pgqueue_queue q WHERE q.name = in_queue;
    IF found_kind IS DISTINCT FROM 'pull' THEN
        RAISE 'no pull queue is called %', in_queue
            USING ERRCODE = 'undefined_object',
                  HINT = CASE WHEN found_kind IS NULL
                      THEN format('Make it: SELECT pgqueue_declare_queue(%L)', in_queue)
                      ELSE 'It is a queue of tasks, whose jobs workers run.' END;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_queue(text) FROM PUBLIC;
