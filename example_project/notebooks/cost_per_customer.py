# %% [markdown]
# # What orders cost, and for whom they are slow
#
# The archive knows how long each step of an order ran, and the shop knows whose order
# it was. Spark joins both: what a customer's orders cost in worker time, and which
# customers wait longest.
#
#     cd example_project
#     DJANGO_SETTINGS_MODULE=config.settings python -m notebooks.cost_per_customer
#
# The lines `# %%` divide it into cells, for Jupyter and for editors that know them.

# %%
import django

django.setup()

from django.db import connection  # noqa: E402

from django_pgqueue.management.spark_session import spark_session  # noqa: E402
from django_pgqueue.spark import read  # noqa: E402

# What an hour of one thread of a worker costs, in cents.
CENTS_PER_HOUR = 4.0

# Customers with fewer orders have no percentile that says much.
ORDERS_MIN = 2

spark = spark_session("cost per customer")

# %% [markdown]
# ## The business tables
#
# They are small, so they come through Django, and through this process. A table of
# millions is read by the executors: `spark.read.jdbc(…)`.


# %%
with connection.cursor() as cursor:
    cursor.execute(
        "SELECT o.id, o.email, p.name, p.cents"
        "  FROM orders_order o JOIN orders_product p ON p.id = o.product_id"
    )
    orders = spark.createDataFrame(
        cursor.fetchall(), "order_id long, customer string, product string, cents int"
    )

# %% [markdown]
# ## The jobs
#
# PostgreSQL finds the steps of the saga, and sends no column but these. The order's id
# is among their arguments.

# %%
archive = read(
    spark,
    "archive",
    columns=["kwargs", "deliveries", "enqueued_at", "started_at", "finished_at"],
    where="task LIKE 'orders.saga.%'",
)
steps = archive.selectExpr(
    "CAST(get_json_object(kwargs, '$.order_id') AS long) AS order_id",
    "deliveries",
    "enqueued_at",
    "finished_at",
    "CAST(finished_at AS double) - CAST(started_at AS double) AS seconds",
)
# Both results below come from it: so it is read once.
steps = steps.where("order_id IS NOT NULL").cache()

# %% [markdown]
# ## What customers cost
#
# Of a job that was tried again, the archive has the times of the last attempt, and how
# many there were.

# %%
costs = (
    steps.join(orders, "order_id")
    .groupBy("customer")
    .agg({"order_id": "count", "seconds": "sum", "deliveries": "sum"})
    .selectExpr(
        "customer",
        "`count(order_id)` AS jobs",
        "`sum(deliveries)` - `count(order_id)` AS repeats",
        "round(`sum(seconds)`, 3) AS seconds",
        f"round(`sum(seconds)` * {CENTS_PER_HOUR} / 3600, 4) AS cents",
    )
    .orderBy("seconds", ascending=False)
)
costs.show(truncate=False)

# %% [markdown]
# ## Who waits
#
# From the first step's enqueue to the last step's end; the customers whose 95th
# percentile is highest.

# %%
lasted = steps.groupBy("order_id").agg({"enqueued_at": "min", "finished_at": "max"})
lasted.selectExpr(
    "order_id",
    "CAST(`max(finished_at)` AS double) - CAST(`min(enqueued_at)` AS double)"
    " AS seconds",
).join(orders, "order_id").createOrReplaceTempView("lasted")
slow = spark.sql(
    "SELECT customer, count(*) AS orders, sum(cents) AS spent,"
    "       round(percentile(seconds, 0.95), 1) AS p95_seconds"
    "  FROM lasted GROUP BY customer HAVING count(*) >= :orders_min"
    " ORDER BY p95_seconds DESC LIMIT 20",
    args={"orders_min": ORDERS_MIN},
)
slow.show(truncate=False)
