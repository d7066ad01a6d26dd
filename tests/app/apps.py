"""A project's own app, as the tests need one."""

from django.apps import AppConfig


class TestAppConfig(AppConfig):
    """Without migrations: Django makes its tables when it makes the test database."""

    name = "tests.app"
    label = "testapp"
