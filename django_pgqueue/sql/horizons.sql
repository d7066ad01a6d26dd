-- Up to which id the log of each topic can be read without skipping anything. A row
-- without a topic is for all that have no row of their own.
--
-- Called by log/horizon.py and spark/log/offsets.py.
--
-- The order is the proof: the highest id drawn, then the locks of those who draw, and
-- only then, in a statement of its own, the messages. An id up to the bound was drawn
-- by a transaction that has ended, hence its message is visible, or was rolled back.
-- The sequence is read through pg_sequence_last_value(), which takes the lock of its
-- page: every 32nd nextval() writes the value of 32 draws later for a moment, for the
-- WAL, and SELECT last_value, which takes no such lock, may read that.
-- Ids are compared modulo 2^32, since a lock's key has no more: what lies half of that
-- behind was drawn later.
--
-- A lock counts only where its transaction has this installation's log open for
-- writing, too: locks of another installation in the database have the same numbers. It
-- had so before it drew its first id, and has so until its end, as it has the lock:
-- what the proof says of the one holds for both.
--
-- Locks: none; it reads the server's table of locks.
CREATE OR REPLACE FUNCTION pgqueue_horizons()
RETURNS TABLE (topic_id integer, bound bigint) LANGUAGE plpgsql AS $$
DECLARE
    highest bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'the horizon of a log is known to the primary alone: a replica '
            'does not see the locks of those who publish'
            USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    highest := coalesce(pg_sequence_last_value('pgqueue_message_id_seq'), 0);
    RETURN QUERY
        WITH lock AS MATERIALIZED (
            SELECT l.locktype, l.virtualtransaction, l.classid,
                   (highest - l.objid::bigint) & 4294967295 AS behind
              FROM pg_locks l
             WHERE l.granted
               AND l.database = (SELECT d.oid FROM pg_database d
                                  WHERE d.datname = current_database())
               AND (l.locktype = 'advisory' AND l.objsubid = 2
                    AND l.mode = 'ShareLock'
                    AND l.classid::bigint BETWEEN 706800001 AND 2147483647
                    OR l.locktype = 'relation'
                    AND l.relation = 'pgqueue_message'::regclass
                    AND l.mode = 'RowExclusiveLock'))
        SELECT NULL::integer, highest
        UNION ALL
        SELECT (held.classid::bigint - 706800000)::integer, highest - max(held.behind)
          FROM lock held
         WHERE held.locktype = 'advisory' AND held.behind < 2147483648
           AND EXISTS (SELECT FROM lock ours
                        WHERE ours.locktype = 'relation'
                          AND ours.virtualtransaction = held.virtualtransaction)
         GROUP BY held.classid;
END $$;
