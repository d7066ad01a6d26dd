from django.contrib import admin
from django.http import HttpRequest

from postoffice.models import EmailMessage, MailChange


class MailChangeInline(admin.TabularInline):  # type: ignore[type-arg]
    """What became of a mail, change by change."""

    model = MailChange
    fields = ("at", "before", "after", "error", "actor")
    ordering = ("id",)
    extra = 0

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(EmailMessage)
class EmailMessageAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """To look at: a mail changes by being sent, and its job is redriven, not edited."""

    list_display = ("id", "status", "subject", "to", "error", "updated_at")
    list_filter = ("status",)
    search_fields = ("subject", "error")
    show_full_result_count = False
    inlines = (MailChangeInline,)

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
