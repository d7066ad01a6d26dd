"""
Bands: the (queue, priority) pairs that live jobs stand in.

Parts of statements, not statements: each is one more table of a WITH RECURSIVE. They
walk the claim index from one pair to the next, so their cost is the number of pairs,
however long the bands are.
"""

from __future__ import annotations

# live(queue): every queue that has a live job.
LIVE_QUEUES = """
live AS (
    (SELECT queue FROM pgqueue_job ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT next.queue FROM live
     CROSS JOIN LATERAL (
           SELECT j.queue FROM pgqueue_job j WHERE j.queue > live.queue
            ORDER BY j.queue LIMIT 1) next
)
"""

# band(queue, place, priority): the bands of the queues in %(queues)s; place is that of
# the queue in there.
BANDS_OF_QUEUES = """
band AS (
    SELECT q.queue, q.place, first.priority
      FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS q(queue, place)
     CROSS JOIN LATERAL (
           SELECT j.priority FROM pgqueue_job j WHERE j.queue = q.queue
            ORDER BY j.priority DESC, j.visible_at LIMIT 1) first
    UNION ALL
    SELECT band.queue, band.place, next.priority
      FROM band
     CROSS JOIN LATERAL (
           SELECT j.priority FROM pgqueue_job j
            WHERE j.queue = band.queue AND j.priority < band.priority
            ORDER BY j.priority DESC, j.visible_at LIMIT 1) next
)
"""

# band(queue, priority, visible_at): the bands of the queues in %(queues)s, and the
# earliest visible_at of each; NULL: it has nothing but parked rows. Without jobs that
# run alone, which a claim passes over.
BANDS_SEEN = """
band AS (
    SELECT q.queue, first.priority, first.visible_at
      FROM unnest(%(queues)s::text[]) AS q(queue)
     CROSS JOIN LATERAL (
           SELECT j.priority, j.visible_at FROM pgqueue_job j
            WHERE j.queue = q.queue AND NOT j.runs_alone
            ORDER BY j.priority DESC, j.visible_at LIMIT 1) first
    UNION ALL
    SELECT band.queue, next.priority, next.visible_at
      FROM band
     CROSS JOIN LATERAL (
           SELECT j.priority, j.visible_at FROM pgqueue_job j
            WHERE j.queue = band.queue AND j.priority < band.priority
              AND NOT j.runs_alone
            ORDER BY j.priority DESC, j.visible_at LIMIT 1) next
)
"""

# band(queue, priority): every band there is, queue by queue.
ALL_BANDS = """
band AS (
    (SELECT queue, priority FROM pgqueue_job
      ORDER BY queue, priority DESC, visible_at LIMIT 1)
    UNION ALL
    SELECT next.queue, next.priority FROM band
     CROSS JOIN LATERAL (
           (SELECT j.queue, j.priority FROM pgqueue_job j
             WHERE j.queue = band.queue AND j.priority < band.priority
             ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1)
           UNION ALL
           (SELECT j.queue, j.priority FROM pgqueue_job j
             WHERE j.queue > band.queue
             ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1)
           LIMIT 1) next
)
"""
