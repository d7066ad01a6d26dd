"""What the pipeline job `export` writes with: places, and what they are checked by."""
