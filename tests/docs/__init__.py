"""The code in the pages does what the pages say."""
