from django.apps import AppConfig


class CountersConfig(AppConfig):
    name = "counters"
    verbose_name = "counters"
    default_auto_field = "django.db.models.BigAutoField"
