"""Flows and sagas."""
