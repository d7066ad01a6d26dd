from django.contrib import admin
from django.http import HttpRequest

from postoffice.models import EmailMessage


@admin.register(EmailMessage)
class EmailMessageAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """To look at: a mail changes by being sent, and its job is redriven, not edited."""

    list_display = ("id", "status", "subject", "to", "error", "updated_at")
    list_filter = ("status",)
    search_fields = ("subject", "error")
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(
        self, request: HttpRequest, obj: EmailMessage | None = None
    ) -> bool:
        return False

    def has_delete_permission(
        self, request: HttpRequest, obj: EmailMessage | None = None
    ) -> bool:
        return False
