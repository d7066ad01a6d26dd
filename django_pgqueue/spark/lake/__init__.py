"""The lake: jobs that have ended and messages, as Delta tables; no Spark, no Java."""
