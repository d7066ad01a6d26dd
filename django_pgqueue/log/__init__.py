"""Storage 2, messages: one verb, one file, its SQL beside it."""
