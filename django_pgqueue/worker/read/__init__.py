"""The readers of topics: one for each group."""
