"""Beside the main line: heartbeat, schedules, and what the leader does for all."""
