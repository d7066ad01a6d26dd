"""The parts of pgqueue_bench: one file a measure, and what the measures share."""
