# %% [markdown]
# # What each contract has sent
#
# The pipeline job ingest has written the topic `mail` to a Delta table; sales keeps a
# CSV of contracts. Spark joins both: what is to be billed, whose mails fail,
# and who sends without a contract. The database is not asked.
#
#     python manage.py pgqueue_pipeline run ingest -o topic=mail -o path=/srv/log
#     cd example_project
#     export DJANGO_SETTINGS_MODULE=config.settings MESSAGES=/srv/log
#     python -m notebooks.mails_by_contract

# %%
import os
from pathlib import Path

import django

django.setup()

from deltalake import DeltaTable  # noqa: E402

from django_pgqueue.management.spark_session import spark_session  # noqa: E402

MESSAGES = os.environ.get("MESSAGES", "/srv/log")
CONTRACTS = Path(__file__).parent / "contracts.csv"
BILLS = os.environ.get("BILLS", f"{MESSAGES}-bills")

spark = spark_session("mails by contract")

# %% [markdown]
# ## What there is
#
# The table's log names the files of a topic, and of days if you like. The payload is
# JSON: name the fields that are used, with their types.

# %%
files = DeltaTable(MESSAGES).file_uris(file_pruning_predicate="topic = 'mail'")
mails = (
    spark.read.parquet(*files)
    .selectExpr(
        "to_date(published_at) AS day",
        "name",
        "from_json(payload, 'id long, domain string, recipients int') AS mail",
    )
    .selectExpr("day", "name", "mail.domain", "mail.recipients")
)
contracts = spark.read.csv(
    str(CONTRACTS),
    header=True,
    schema="domain string, customer string, plan string, cents_per_mail int",
)

# %% [markdown]
# ## What is to be billed
#
# One row for each contract and day, also of a contract that has sent nothing that day.

# %%
mails.createOrReplaceTempView("mails")
contracts.createOrReplaceTempView("contracts")
bills = spark.sql(
    "SELECT days.day, c.customer, c.plan,"
    "       count_if(m.name = 'mail.sent') AS sent,"
    "       count_if(m.name = 'mail.failed') AS failed,"
    "       coalesce(sum(m.recipients * c.cents_per_mail)"
    "                FILTER (WHERE m.name = 'mail.sent'), 0) AS cents"
    "  FROM contracts c CROSS JOIN (SELECT DISTINCT day FROM mails) days"
    "  LEFT JOIN mails m ON m.domain = c.domain AND m.day = days.day"
    " GROUP BY days.day, c.customer, c.plan"
)
# A second run writes the same days again, and no row twice.
bills.write.mode("overwrite").partitionBy("day").parquet(BILLS)
spark.read.parquet(BILLS).orderBy("day", "customer").show(truncate=False)

# %% [markdown]
# ## Who has no contract

# %%
strangers = (
    mails.join(contracts, "domain", "left_anti")
    .groupBy("domain")
    .count()
    .orderBy("count", ascending=False)
)
strangers.show(truncate=False)
