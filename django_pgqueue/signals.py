"""
Every event as a Django signal, with its fields and units.

A signal that nobody listens to costs one attribute look-up. Receivers are called in
the process and thread where the event happened: those of jobs inside the worker, that
of job_enqueued inside the caller's transaction. An exception in a receiver of a worker
is logged and does not touch the job. The sender of a job's signals is its Task, so
``connect(receiver, sender=send_receipt)`` hears of that task alone; it is None for a
job of a task that is not declared.
"""

from __future__ import annotations

from django.dispatch import Signal

# A job was stored, in a transaction that may still roll back.
# sender: the Task. job_id: int. task: its name. queue: str.
# Bulk enqueues send it once per job.
job_enqueued = Signal()

# An enqueue met a queue that holds as many jobs as it may, and says what follows: once
# per call, before anything is stored or refused, and before "block" waits.
# sender: the Task, or None for a tick of a task that is not declared. queue: its name
# (str). depth: int, how many jobs it holds; one more than the limit is that many or
# more. depth_max: int. jobs: int, how many are to come. on_full: "refuse", "block" or
# "signal"; that of a schedule's tick is always "signal", since its job is stored.
queue_full = Signal()

# A worker is about to call the task. sender: the Task. job: worker.Claimed.
job_started = Signal()

# The ack is committed. sender: the Task. job. ran_seconds: float.
# result: what it returned, as JSON text, or None.
job_succeeded = Signal()

# The attempt failed and the job waits for its next one. sender: the Task. job.
# error: the exception. delay_seconds: float until the next attempt.
job_retried = Signal()

# The job moved to the dead letters. sender: the Task. job. reason: str.
# error: the exception, or None when none was caught.
job_dead = Signal()

# The job ended as cancelled, before it ran or because its task gave up. sender: the
# Task. job.
job_cancelled = Signal()

# The job's time had passed before it could start. sender: the Task. job.
job_expired = Signal()

# A settle found that the job is no longer this worker's; nothing was written.
# sender: the Task. job_id: int. delivery: int. kind: "ack", "forget" (the ack of a task
# that keeps no archive), "retry", "dead", "expire", "cancel" or "release".
settle_stale = Signal()

# The watch has found that something is wrong, much more of it, or that it is over. Sent
# in the worker that leads, within a minute, whoever has looked.
# sender: None. kind: "lapsed_leases", "unclaimed_jobs", "new_dead_letters",
# "silent_schedules", "halted_groups" or "stuck_sagas". subject: a queue, a task, a
# schedule, a topic and a group, or the name of sagas (str). change: "begins", "grows"
# or "ends". count: int, up to a bound. detail: a sentence (str). since: datetime.
alert_changed = Signal()

# The circuit breaker of a task has opened: no worker begins a job of it until the
# cool-down is over and a probe has succeeded. Sent once, where it was opened.
# sender: the Task. task: its name. trips: int, how often in a row. cooldown_seconds:
# float. reason: str, redacted.
breaker_opened = Signal()

# Its probe has succeeded, and the task goes on. An operator who closes it sends none.
# sender: the Task. task: its name.
breaker_closed = Signal()

# A tick of a schedule was dealt with. sender: the Task, or None where a message is
# published. schedule: its name (str). due_at: datetime. outcome: "enqueued",
# "published", "overlap", "duplicate" or "missed". job_id, message_id: int or None.
# missed: int, ticks before it that were dropped. late_seconds: float.
schedule_ticked = Signal()

# Messages of one topic were stored, in a transaction that may still roll back.
# sender: None. topic: its name (str). ids: list of int. jobs: int, how many
# subscriptions' jobs came of them.
messages_published = Signal()

# A group's handler has taken a batch, and the position is moved and committed.
# sender: the Task. topic, group: str. partition: int. count: int. ran_seconds: float.
messages_consumed = Signal()

# A partition waits until somebody resumes it or seeks: a message has failed all its
# attempts, and the group's policy is "halt". sender: the Task. topic, group: str.
# partition: int. message_id: int. error: the exception, or None when a reader died.
group_halted = Signal()

# A message that a group's handler could not take became a dead letter. sender: the
# Task. topic, group: str. partition: int. message_id: int. dead_letter: its id (int).
# reason: str. error: the exception, or None when a reader died.
message_dead_lettered = Signal()

# Retention removes messages that a consumer group has not read; the group is halted.
# sender: the Task of the group, or None. topic, group: names (str). partitions: tuple
# of int. messages: int, how many; is_exact: bool, False: there are more. first_id,
# last_id: int. first_at, last_at: datetime.
group_lost_messages = Signal()

# Retention is about to remove messages that a subscription has no job for yet: its
# back-fill was disabled, or too slow.
# sender: the Task of the subscription, or None. topic, pattern, queue: names (str).
# is_disabled: bool. The rest as above.
subscription_lost_messages = Signal()

# A subscription has as many jobs as its backlog says, or more. Sent by the leader when
# it finds that out, and not again before there were fewer.
# sender: the Task of the subscription, or None. pattern, queue: names (str).
# on_full: "pause", "drop_oldest" or "refuse". depth, depth_max: how many there are, and
# may be (int).
subscription_full = Signal()

# A worker process is ready to claim, or has settled its last job.
# sender: None. worker: its name (str).
worker_started = Signal()
worker_stopped = Signal()
