"""Django's plug points: what a project names in its own settings."""
