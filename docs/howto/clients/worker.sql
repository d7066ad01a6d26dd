-- A worker of the pull queue "thumbs": psql --file worker.sql
-- Receive, effect and ack are one statement, so one transaction; again every second.

WITH message AS MATERIALIZED (
    SELECT receipt, payload FROM pgqueue_receive('thumbs', 10)
), effect AS (
    INSERT INTO shop_thumbnail (path) SELECT payload ->> 'path' FROM message
)
SELECT pgqueue_ack(string_agg(receipt, ' ')) FROM message HAVING count(*) > 0
\watch 1
