"""People who look at the admin, each with the permissions that a test names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import Permission, User
from django.test import Client

Staff = Callable[..., Client]


@pytest.fixture(autouse=True)
def _without_sidebar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out Django's list of all pages, which takes a fifth of the time of each."""
    monkeypatch.setattr(AdminSite, "enable_nav_sidebar", False)


@pytest.fixture
def sidebar(_without_sidebar: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it on each page, as everybody has."""
    monkeypatch.setattr(AdminSite, "enable_nav_sidebar", True)


@pytest.fixture
def staff(db: None) -> Staff:
    """
    A factory of clients: ``staff("view_job", "retry")`` is a member of staff.

    The permissions are those of this package; keyword arguments are Client's.
    """

    def staff(*codenames: str, **options: bool) -> Client:
        user = User.objects.create_user(
            f"staff-{User.objects.count()}", is_staff=True, password=None
        )
        permissions = Permission.objects.filter(
            content_type__app_label="pgqueue", codename__in=codenames
        )
        assert len(set(codenames)) == len(permissions)
        user.user_permissions.set(permissions)
        client = Client(**options)
        client.force_login(user)
        return client

    return staff
