"""
Every advisory-lock key class of the package, in one place.

PostgreSQL's two-integer advisory locks are (class, key). A class of our own for each
use keeps them apart from one another; the numbers are arbitrary and, once released,
never change. All are transaction-level: a session-level lock would be lost or leaked
behind a transaction-mode pooler.

Several installations can share a database, with a schema each. Locks are of the
database, so a lock that is about a table of ours has the installation in its key.
"""

from __future__ import annotations

# The key of what an installation locks as a whole: a table of its own, by its oid.
INSTALLATION = "'pgqueue_job'::regclass::oid::integer"

# Who makes or drops the day partitions of archive and log. Key: INSTALLATION. The
# functions in sql/ have the number, too.
PARTITIONS = 706_701
# Who elects the leader. Key: INSTALLATION.
LEADER = 706_702
# Who writes what code declares of schedules. Key: INSTALLATION.
SCHEDULES = 706_704
# Who writes what code declares of subscriptions. Key: INSTALLATION.
SUBSCRIPTIONS = 706_705
# Who lets jobs of a lane through. Key: of the lane's name and the installation; the
# function pgqueue_promote() has the number, too.
LANES = 706_706
# Who claims from a queue with a limit. Key: of the queue's name and the installation.
QUEUE_LIMITS = 706_707
# Who looks for what is wrong. Key: INSTALLATION; the function pgqueue_watch() has the
# number, too.
WATCH = 706_708
# Who begins a run of a pipeline job. Key: of the job's name and the installation.
PIPELINE_RUNS = 706_709
# Which topics a transaction publishes to, shared. Class: this and the topic's id, so no
# class of ours is higher; key: the low 32 bits of the highest message id that was drawn
# before. Of which installation, another lock of the transaction says: that of the
# table that it publishes into. The functions in sql/ have the number, too.
TOPICS = 706_800_000
