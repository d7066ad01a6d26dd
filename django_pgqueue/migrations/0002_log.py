"""Topics: the log, subscriptions, consumer groups and message schedules."""

import django_pgqueue.models.columns
from django.db import migrations, models

from ._sql import create_functions, run_file

# The files of sql/ that this migration runs, in any order.
FUNCTIONS = """
    begin_publish capture capture_less close_log_day commit_position horizons inbox
    message_lane patterns publish read schedule_messages
    store_message store_messages subscription_lane subscription_pattern unread watch
"""

# The partitions of today and the coming week, by the day in UTC.
DAYS = "SELECT pgqueue_make_log_day((now() AT TIME ZONE 'UTC')::date + n) FROM generate_series(0, 7) n"


class Migration(migrations.Migration):

    dependencies = [('pgqueue', '0001_core')]

    operations = [
        migrations.CreateModel(
            name='LogDay',
            fields=[
                ('day', models.DateField(primary_key=True, serialize=False, verbose_name='day')),
                ('last_id', models.BigIntegerField(verbose_name='last id')),
                ('topic_bytes', models.JSONField(null=True, verbose_name='bytes of topics')),
            ],
            options={
                'verbose_name': 'day of the log',
                'verbose_name_plural': 'days of the log',
                'db_table': 'pgqueue_log_day',
                'default_permissions': ('view',),
            },
        ),
        migrations.CreateModel(
            name='LogState',
            fields=[
                ('id', models.SmallIntegerField(db_default=1, primary_key=True, serialize=False, verbose_name='id')),
                ('epoch', models.BigIntegerField(db_default=0, verbose_name='epoch')),
            ],
            options={
                'verbose_name': 'state of the log',
                'verbose_name_plural': 'state of the log',
                'db_table': 'pgqueue_log_state',
                'default_permissions': ('view',),
            },
        ),
        migrations.CreateModel(
            name='Topic',
            fields=[
                ('id', models.AutoField(primary_key=True, serialize=False, verbose_name='id')),
                ('name', models.CharField(max_length=63, unique=True, verbose_name='name')),
                ('partitions', models.SmallIntegerField(db_default=16, verbose_name='partitions')),
                ('first_partition', models.SmallIntegerField(db_default=0, verbose_name='first partition')),
                ('retain', models.DurationField(null=True, verbose_name='retention')),
                ('retain_bytes', models.BigIntegerField(null=True, verbose_name='bytes kept')),
                ('log_bytes', models.BigIntegerField(null=True, verbose_name='bytes')),
                ('log_bytes_at', models.DateTimeField(null=True, verbose_name='measured at')),
                ('wait_for_ingest', models.DurationField(null=True, verbose_name='wait for ingest')),
                ('schema', models.CharField(max_length=255, null=True, verbose_name='schema')),
                ('removed_to', models.BigIntegerField(db_default=0, verbose_name='removed up to')),
                ('declared', models.JSONField(null=True, verbose_name='declared')),
                ('last_declared_at', models.DateTimeField(null=True, verbose_name='last declared at')),
                ('created_at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField(), template='%(function)s()'), verbose_name='created at')),
            ],
            options={
                'verbose_name': 'topic',
                'verbose_name_plural': 'topics',
                'db_table': 'pgqueue_topic',
                'default_permissions': ('view',),
            },
        ),
        migrations.CreateModel(
            name='Generation',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False, verbose_name='id')),
                ('topic_id', models.IntegerField(verbose_name='topic')),
                ('first_partition', models.SmallIntegerField(verbose_name='first partition')),
                ('partitions', models.SmallIntegerField(verbose_name='partitions')),
                ('ended_at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField(), template='%(function)s()'), verbose_name='ended at')),
                ('ended_by', models.BigIntegerField(verbose_name='ended by the transaction')),
                ('last_id', models.BigIntegerField(null=True, verbose_name='last id')),
            ],
            options={
                'verbose_name': 'generation of partitions',
                'verbose_name_plural': 'generations of partitions',
                'db_table': 'pgqueue_generation',
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('topic_id', 'first_partition'), name='pgqueue_generation_first')],
            },
        ),
        migrations.CreateModel(
            name='ConsumerGroup',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False, verbose_name='id')),
                ('topic_id', models.IntegerField(verbose_name='topic id')),
                ('topic', models.CharField(max_length=63, verbose_name='topic')),
                ('name', models.CharField(max_length=63, verbose_name='name')),
                ('task', models.CharField(max_length=255, verbose_name='task')),
                ('queue', models.CharField(db_default='default', max_length=63, verbose_name='queue')),
                ('batch', models.IntegerField(db_default=500, verbose_name='messages per batch')),
                ('lease_seconds', models.FloatField(db_default=60.0, verbose_name='lease, in seconds')),
                ('is_atomic', models.BooleanField(db_default=False, verbose_name='atomic')),
                ('payload_filter', models.JSONField(null=True, verbose_name='where')),
                ('on_error', models.CharField(choices=[('retry', 'retry for ever'), ('skip', 'retry, then to the dead letters'), ('halt', 'retry, then halt the partition')], db_default='skip', max_length=5, verbose_name='on error')),
                ('max_attempts', models.SmallIntegerField(db_default=5, verbose_name='maximum attempts')),
                ('start', models.CharField(db_default='latest', max_length=40, verbose_name='start')),
                ('is_merging', models.BooleanField(db_default=False, verbose_name='merging')),
                ('paused_at', models.DateTimeField(null=True, verbose_name='paused at')),
                ('paused_by', models.CharField(max_length=150, null=True, verbose_name='paused by')),
                ('pause_reason', models.TextField(null=True, verbose_name='pause reason')),
                ('last_declared_at', models.DateTimeField(null=True, verbose_name='last declared at')),
                ('created_at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField(), template='%(function)s()'), verbose_name='created at')),
            ],
            options={
                'verbose_name': 'consumer group',
                'verbose_name_plural': 'consumer groups',
                'db_table': 'pgqueue_consumer_group',
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('topic_id', 'name'), name='pgqueue_consumer_group_name')],
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[run_file("tables/message", back="DROP TABLE pgqueue_message")],
            state_operations=[
                migrations.CreateModel(
                    name='Message',
                    fields=[
                        ('id', models.BigIntegerField(primary_key=True, serialize=False, verbose_name='id')),
                        ('published_at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField(), template='%(function)s()'), verbose_name='published at')),
                        ('epoch', models.BigIntegerField(db_default=0, verbose_name='epoch')),
                        ('topic_id', models.IntegerField(verbose_name='topic')),
                        ('partition', models.SmallIntegerField(verbose_name='partition')),
                        ('name', models.CharField(max_length=255, verbose_name='name')),
                        ('key', models.CharField(max_length=1000, null=True, verbose_name='key')),
                        ('payload', models.JSONField(verbose_name='payload')),
                        ('headers', models.JSONField(db_default=models.Value({}, models.JSONField()), verbose_name='headers')),
                    ],
                    options={
                        'verbose_name': 'message',
                        'verbose_name_plural': 'messages',
                        'db_table': 'pgqueue_message',
                        'default_permissions': ('view',),
                        'indexes': [models.Index(fields=['topic_id', 'partition', 'id'], name='pgqueue_message_log')],
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name='Position',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False, verbose_name='id')),
                ('group_id', models.BigIntegerField(verbose_name='group')),
                ('partition', models.SmallIntegerField(verbose_name='partition')),
                ('position', models.BigIntegerField(db_default=0, verbose_name='position')),
                ('moved_at', models.DateTimeField(null=True, verbose_name='moved at')),
                ('fence', models.BigIntegerField(db_default=0, verbose_name='fence')),
                ('leased_by', models.CharField(max_length=100, null=True, verbose_name='leased by')),
                ('leased_until', models.DateTimeField(null=True, verbose_name='leased until')),
                ('last_read_at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField(), template='%(function)s()'), verbose_name='last read at')),
                ('failures', models.SmallIntegerField(db_default=0, verbose_name='failures')),
                ('retry_at', models.DateTimeField(null=True, verbose_name='retry at')),
                ('single_to', models.BigIntegerField(null=True, verbose_name='one by one up to')),
                ('errors', models.JSONField(null=True, verbose_name='errors')),
                ('halted_at', models.DateTimeField(null=True, verbose_name='halted at')),
                ('halted_for', models.CharField(max_length=9, null=True, verbose_name='halted for')),
            ],
            options={
                'verbose_name': 'position',
                'verbose_name_plural': 'positions',
                'db_table': 'pgqueue_position',
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('group_id', 'partition'), name='pgqueue_position_partition')],
            },
        ),
        migrations.CreateModel(
            name='Subscription',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False, verbose_name='id')),
                ('source', models.CharField(choices=[('code', 'code'), ('user', 'user')], db_default='user', max_length=4, verbose_name='source')),
                ('pattern', models.CharField(max_length=255, verbose_name='pattern')),
                ('topic', models.CharField(max_length=63, null=True, verbose_name='topic')),
                ('regex', models.CharField(max_length=2000, null=True, verbose_name='regular expression')),
                ('payload_filter', models.JSONField(null=True, verbose_name='where')),
                ('task', models.CharField(max_length=255, verbose_name='task')),
                ('queue', models.CharField(db_default='default', max_length=63, verbose_name='queue')),
                ('priority', models.SmallIntegerField(db_default=0, verbose_name='priority')),
                ('max_attempts', models.SmallIntegerField(db_default=5, verbose_name='maximum attempts')),
                ('headers', models.JSONField(db_default=models.Value({}, models.JSONField()), verbose_name='headers')),
                ('lane_by', django_pgqueue.models.columns.TextArray(null=True, verbose_name='lane by')),
                ('lane_capacity', models.IntegerField(null=True, verbose_name='lane capacity')),
                ('lane_spacing', models.FloatField(null=True, verbose_name='lane spacing')),
                ('lane_burst', models.IntegerField(null=True, verbose_name='lane burst')),
                ('lane_policy', models.CharField(max_length=20, null=True, verbose_name='lane policy')),
                ('backlog_max', models.IntegerField(null=True, verbose_name='backlog maximum')),
                ('backlog_on_full', models.CharField(max_length=11, null=True, verbose_name='when it is full')),
                ('backlog', models.IntegerField(null=True, verbose_name='backlog')),
                ('backlog_at', models.DateTimeField(null=True, verbose_name='counted at')),
                ('full_at', models.DateTimeField(null=True, verbose_name='full since')),
                ('held_at', models.DateTimeField(null=True, verbose_name='held since')),
                ('since_epoch', models.BigIntegerField(db_default=0, verbose_name='since epoch')),
                ('start', models.CharField(db_default='latest', max_length=40, verbose_name='start')),
                ('backfill_position', models.BigIntegerField(null=True, verbose_name='back-filled up to')),
                ('missed', django_pgqueue.models.columns.IdArray(null=True, verbose_name='missed epochs')),
                ('backfill_xid', models.BigIntegerField(null=True, verbose_name='subscribing transaction')),
                ('lost', models.JSONField(null=True, verbose_name='lost')),
                ('disabled_at', models.DateTimeField(null=True, verbose_name='disabled at')),
                ('disabled_by', models.CharField(max_length=150, null=True, verbose_name='disabled by')),
                ('disabled_reason', models.TextField(null=True, verbose_name='reason')),
                ('last_declared_at', models.DateTimeField(null=True, verbose_name='last declared at')),
                ('created_at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField(), template='%(function)s()'), verbose_name='created at')),
            ],
            options={
                'verbose_name': 'subscription',
                'verbose_name_plural': 'subscriptions',
                'db_table': 'pgqueue_subscription',
                'default_permissions': ('view',),
                'indexes': [models.Index(condition=models.Q(('disabled_at__isnull', True)), fields=['pattern'], name='pgqueue_subscription_routes'), models.Index(condition=models.Q(('disabled_at__isnull', True)), fields=['topic'], name='pgqueue_subscription_topic')],
                'constraints': [models.UniqueConstraint(fields=('queue', 'pattern', 'task'), name='pgqueue_subscription_route')],
            },
        ),
        migrations.CreateModel(
            name='InboxEntry',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False, verbose_name='id')),
                ('source', models.CharField(max_length=63, verbose_name='source')),
                ('external_id', models.CharField(max_length=512, verbose_name='external id')),
                ('received_at', models.DateTimeField(db_default=models.Func(function='clock_timestamp', output_field=models.DateTimeField(), template='%(function)s()'), verbose_name='received at')),
            ],
            options={
                'verbose_name': 'inbox entry',
                'verbose_name_plural': 'inbox',
                'db_table': 'pgqueue_inbox',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['received_at'], name='pgqueue_inbox_old')],
                'constraints': [models.UniqueConstraint(fields=('source', 'external_id'), name='pgqueue_inbox_once'), models.CheckConstraint(condition=models.Q(models.Q(('source', ''), _negated=True), models.Q(('external_id', ''), _negated=True)), name='pgqueue_inbox_named')],
            },
        ),
        migrations.RunSQL("ALTER TABLE pgqueue_position SET (fillfactor = 50)", migrations.RunSQL.noop),
        create_functions(FUNCTIONS),
        migrations.RunSQL(DAYS, migrations.RunSQL.noop),
    ]
