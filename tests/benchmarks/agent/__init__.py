"""What the programs of Python peers share. No imports beyond the standard library."""
