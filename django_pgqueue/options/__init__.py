"""Options: what may be said of a job, by whoever says it."""
