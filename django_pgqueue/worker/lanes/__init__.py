"""What opens lanes."""
