from django.apps import AppConfig


class PostOfficeConfig(AppConfig):
    name = "postoffice"
    verbose_name = "post office"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from postoffice import receivers  # noqa: F401 - connects them.
