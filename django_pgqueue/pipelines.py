"""
The pipeline of this app, found as that of any other: by its module `pipelines`.

Importing it declares the package's own pipeline jobs. It needs no pyspark: that is
imported when a job runs.
"""

from __future__ import annotations

from django_pgqueue.spark.jobs import metrics

__all__ = ["metrics"]
