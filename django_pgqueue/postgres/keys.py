"""
Every advisory-lock key class of the package, in one place.

PostgreSQL's two-integer advisory locks are (class, key). A class of our own for each
use keeps them apart from one another; the numbers are arbitrary and, once released,
never change. All are transaction-level: a session-level lock would be lost or leaked
behind a transaction-mode pooler.
"""

from __future__ import annotations

# Who makes or drops the day partitions of the archive. Key: 0.
PARTITIONS = 706_701
# Who elects the leader. Key: 0.
LEADER = 706_702
# Which writes from Spark have a task at work, shared. Key: of the write's id.
SPARK_WRITE = 706_703
# Who writes what code declares of schedules. Key: 0.
SCHEDULES = 706_704
# Who writes what code declares of subscriptions. Key: 0.
SUBSCRIPTIONS = 706_705
# Which topics a transaction publishes to, shared. Class: this and the topic's id, so no
# class of ours is higher; key: the low 32 bits of the highest message id that was drawn
# before. The functions of migration 0014 have the number, too.
TOPICS = 706_800_000
