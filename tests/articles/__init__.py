"""What becomes of published designs of queues in PostgreSQL when they are run."""
