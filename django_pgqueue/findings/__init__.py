"""Findings: what can be wrong with the queue, each described in one place."""
