"""
Where Spark finds format("pgqueue"): it looks through every top-level pyspark_* module.

Every session on a machine that has this distribution imports it, whether it reads a
queue or not, so it imports nothing that pyspark itself does not need.
"""

from django_pgqueue.spark.source import PgQueueSource as DefaultSource

__all__ = ["DefaultSource"]
