"""What frames.py reads by: Spark's own JDBC source, where PostgreSQL's driver is."""
