-- One round of a worker in psql: receive a message, write its effect and ack it in one
-- transaction; where another receiver has it by then, neither.
SELECT count(*) = 1 AS is_there, min(receipt) AS receipt, min(payload ->> 'number') AS number
  FROM pgqueue_receive('both', 1, :seconds) \gset
\if :is_there
    BEGIN;
    INSERT INTO effect (number, by) VALUES (:number, 'psql');
    SELECT pg_sleep(600) WHERE :'stops' = 'after effect';
    SELECT pgqueue_ack(:'receipt') -> 'stale' = '[]' AS is_ours \gset
    \if :is_ours
        COMMIT;
    \else
        ROLLBACK;
    \endif
\endif
