"""What PostgreSQL gives, wrapped once: connections, wake-ups, lock keys, a server."""
