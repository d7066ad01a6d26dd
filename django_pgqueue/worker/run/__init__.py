"""From a claimed job to its outcome: threads, coroutines, pool."""
