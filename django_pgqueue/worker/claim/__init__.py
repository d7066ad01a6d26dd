"""When to look for jobs, where, and how they are leased."""
