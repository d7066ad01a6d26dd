"""
Bounds: names and ranges that hold whoever reads or writes them.

tasks/ asks for them at enqueue, conf.py in the settings, and spark/ on executors, which
have neither Django nor settings. So this module imports nothing of the package.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

# A name that a shell, a URL and a log line carry without quoting.
QUEUE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
QUEUE_DEFAULT = "default"

TASK_NAME_MAX = 255

# The task that messages of pull queues have, and no function. SQL has it as text, too.
PULL_TASK = "pgqueue.pull"
# The task that publishes messages later, and its queue, which every worker serves.
# sql/schedule_messages.sql has both as text, too.
PUBLISH_TASK = "pgqueue.publish"
PUBLISH_QUEUE = "pgqueue_messages"

PRIORITY_MIN, PRIORITY_MAX = -100, 100
PRIORITY_DEFAULT = 0

# Of the column.
ATTEMPTS_MAX = 32_767
ATTEMPTS_DEFAULT = 5

# Of a task with accumulate: calls of one run, and how long a call waits for others.
ACCUMULATE_SIZE_MAX = 10_000
ACCUMULATE_WITHIN_MAX = timedelta(hours=1)

# Of PGQUEUE["QUEUES"][…]["depth_max"]: what is counted in a good part of a second.
DEPTH_MAX_MAX = 1_000_000

# Of a limit: how many jobs at a time.
LANE_CAPACITY_MAX = 100_000
# Of a rate, and of throttle: how many jobs in a period.
RATE_JOBS_MAX = 1_000_000
# How many seconds there are from one job of a rate to the next, and how many may be
# ahead of that. The trigger in sql/job_place.sql has these numbers, too.
LANE_SPACING_MIN = 0.000001
LANE_SPACING_MAX = 31 * 86_400
LANE_BURST_MAX = 100_000

# Of a topic, and of the log as a whole: how many bytes may be kept. Less than the least
# is what a day has without any message, with room for some.
LOG_BYTES_MIN, LOG_BYTES_MAX = 1_048_576, 1_125_899_906_842_624

# Rows, or messages, that somebody may ask for in a second.
PER_SECOND_MAX = 100_000

# Of the columns.
KEY_CHARACTERS_MAX = 255
LANE_CHARACTERS_MAX = 255
# Between a lane's task and the values of its key.
LANE_SEPARATOR = ":"
# What the names of lanes of pull queues begin with: a queue and a group follow.
PULL_LANES = f"{PULL_TASK}{LANE_SEPARATOR}"
# The policy of lanes that take turns.
FAIR = "fair"
# How many jobs one of them has in a turn.
LANE_WEIGHT_MAX = 100
# The hash that the end of a longer name becomes.
LANE_DIGITS = 32

# Of the inbox: who has sent a message from outside, and what that one calls it. Both
# fit into an entry of an index, whatever their characters are.
SOURCE_CHARACTERS_MAX = 63
EXTERNAL_ID_CHARACTERS_MAX = 512

TAGS_MAX = 20
TAG_CHARACTERS_MAX = 63

TIME_MIN = datetime(1900, 1, 1, tzinfo=UTC)
TIME_MAX = datetime(9000, 1, 1, tzinfo=UTC)

# jsonb keeps digits, not exponents: from here on a float would come back as an int.
FLOAT_PLAIN_MAX = 1e16

# Of args and kwargs together, unless PGQUEUE["PAYLOAD_BYTES_MAX"] says otherwise.
PAYLOAD_BYTES_DEFAULT = 1_048_576

# Why a job gives up; as models/dead_letter.py has it, which says each in words.
DEAD_REASONS = (
    *("rejected", "exhausted", "timeout", "lease_expired", "worker_lost"),
    *("unknown_task", "undecodable", "unpermitted"),
)

# Header keys that the package writes; callers have options for them, or no say.
RESERVED = ("tags", "trace", "request_id")
RESERVED_PREFIX = "pgqueue."

# Where days of the archive are exported to: a path from the root, or a URI. A path from
# the folder that a process happens to be in would be another place for each of them.
EXPORT_TARGET = re.compile(r"/+[^/]|[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
EXPORT_CHARACTERS_MAX = 900
