"""Contract: what topics and tasks take, as one document; and which changes break it."""
