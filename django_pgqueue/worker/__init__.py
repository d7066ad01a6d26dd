"""The process that moves jobs along: one loop, one file."""
