"""Storage of things that advance: a cursor and plain values, one file each."""
