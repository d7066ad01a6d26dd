"""What a job means: tasks, their arguments, retries, outcomes and results."""
