"""Storage 1, jobs: one verb, one file, its SQL beside it."""
