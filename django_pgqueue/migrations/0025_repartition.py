"""Repartition: a topic's count of partitions changes, and key order is kept."""

from pathlib import Path

from django.db import migrations, models

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")


def of(migration: str, name: str) -> str:
    """Return a function as an earlier migration made it."""
    text = Path(__file__).with_name(f"{migration}.sql").read_text("utf-8")
    return text.partition(f"-- {name}.sql\n")[2].partition("\n-- ")[0]


# What came before knows partitions from 0 on alone. Groups get positions in those where
# they have none any more, at what was drawn last: what is there they have read.
FUNCTIONS_BACK = (
    """
INSERT INTO pgqueue_position (group_id, partition, position)
SELECT g.id, n, CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END
  FROM pgqueue_message_id_seq s, pgqueue_consumer_group g
  JOIN pgqueue_topic t ON t.id = g.topic_id AND t.first_partition > 0
 CROSS JOIN LATERAL generate_series(0, t.partitions - 1) n
    ON CONFLICT (group_id, partition) DO NOTHING;
"""
    + of("0023_bounds", "store_message")
    + of("0023_bounds", "store_messages")
    + of("0022_read_log", "read")
    + of("0024_later", "pins")
)


class Migration(migrations.Migration):
    """Two columns with a default, which write no row anew, and a table."""

    dependencies = [("pgqueue", "0024_later")]

    operations = [
        migrations.AddField(
            "topic",
            "first_partition",
            models.SmallIntegerField(db_default=0, verbose_name="first partition"),
        ),
        migrations.AddField(
            "consumergroup",
            "is_merging",
            models.BooleanField(db_default=False, verbose_name="merging"),
        ),
        migrations.CreateModel(
            name="Generation",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("topic_id", models.IntegerField(verbose_name="topic")),
                (
                    "first_partition",
                    models.SmallIntegerField(verbose_name="first partition"),
                ),
                ("partitions", models.SmallIntegerField(verbose_name="partitions")),
                (
                    "ended_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="ended at",
                    ),
                ),
                (
                    "ended_by",
                    models.BigIntegerField(verbose_name="ended by the transaction"),
                ),
                (
                    "last_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="last id"
                    ),
                ),
            ],
            options={
                "verbose_name": "generation of partitions",
                "verbose_name_plural": "generations of partitions",
                "db_table": "pgqueue_generation",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("topic_id", "first_partition"),
                        name="pgqueue_generation_first",
                    )
                ],
            },
        ),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
    ]
