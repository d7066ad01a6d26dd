"""Pull queues, by Python and by SQL alone."""
