"""People who look at the admin, each with the permissions that a test names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

Staff = Callable[..., Client]


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
