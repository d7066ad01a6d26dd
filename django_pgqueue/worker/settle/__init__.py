"""Outcomes, on their way to the database."""
