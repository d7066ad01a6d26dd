"""Replay: what was, once more, and history for who is new; asked.py has the options."""
