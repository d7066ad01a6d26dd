"""Something to order."""

from typing import Any

from django.db import migrations


def stock_up(apps: Any, schema_editor: Any) -> None:
    product = apps.get_model("orders", "Product")
    product.objects.bulk_create(
        [
            product(name="Teapot", cents=2_900, stock=20),
            product(name="Samovar", cents=24_900, stock=2),
        ]
    )


class Migration(migrations.Migration):
    dependencies = [
        ("orders", "0001_initial"),
    ]

    operations = [
        migrations.RunPython(stock_up, migrations.RunPython.noop),
    ]
