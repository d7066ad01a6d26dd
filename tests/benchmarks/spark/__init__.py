"""
Spark's side: reading and writing jobs, beside Spark's JDBC source and beside COPY; and
the pipeline job ingest.

    python -m tests.benchmarks.spark --json tests/benchmarks/measured/spark.json

It needs the extra [spark] and, for what stands beside, PostgreSQL's JDBC driver:
Debian has it as libpostgresql-jdbc-java. Each thing is done once unmeasured, so that
the Java process is warm; then all take turns, and a ratio is taken in each turn. What
a session costs that only reads once is measured in processes of their own.
"""
