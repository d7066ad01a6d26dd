"""Pull queues: messages that clients send and receive themselves, without a task."""
