"""
Settings of the example, and a guide to setting up django_pgqueue in a project.

What the queue needs is marked with (1) to (4). Everything else is what
`django-admin startproject` writes, read from the environment by django-environ:

    DATABASE_URL   postgres://user:password@host:5432/name
    EMAIL_URL      smtp://user:password@host:587, and others: see mail.py
    SECRET_KEY     required unless DEBUG is on
    DEBUG          on by default, so that `manage.py runserver` just works
    PARTNERS_URL   http://127.0.0.1:8008: the bank and the parcel service of the orders
    POSTMASTERS    who gets the digest of each day, with commas between them
    ALLOWED_HOSTS  names of the web server, with commas between them
"""

from pathlib import Path

import environ

from config.mail import TO_QUEUE, as_admins, mail_settings, through
from django_pgqueue.testing.embedded import database_url

env = environ.Env()

CHECKOUT = Path(__file__).resolve().parents[2]

DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env("SECRET_KEY", **({"default": "insecure"} if DEBUG else {}))
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])

# (1) Jobs live in the database of the project, so that a job commits or rolls back
# with the rows that it is about. database_url() is DATABASE_URL where that is set;
# otherwise it starts PostgreSQL from a wheel, which is for first steps only. Your
# project says: DATABASES = {"default": env.db()}
DATABASES = {"default": env.db_url_config(database_url(CHECKOUT))}
# A thread of the web server keeps its connection, and tests it before it is reused.
DATABASES["default"]["CONN_MAX_AGE"] = 60
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
# Apart from that of the package's own tests, which may run at the same time.
DATABASES["default"]["TEST"] = {
    "NAME": f"test_postoffice_{DATABASES['default']['NAME']}"
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",  # For the lists of addresses in postoffice/models.py.
    # (2) The queue: its tables, its admin pages, and `manage.py pgqueue_worker`. It
    # imports tasks.py of every app here, so that every worker knows every task.
    "django_pgqueue",
    "postoffice",
    "counters",  # Knows what the post office publishes, and nothing else of it.
    "orders",  # A saga, which ends with a mail.
]

# (3) Every key has a good default; see django_pgqueue/conf.py. A worker that is told
# to stop gives the mails that it is sending this long.
# Tasks stand in tasks.py and reminders.py, those that run by themselves in nightly.py,
# those that are steps of a saga in saga.py, and what reads changes in audit.py.
PGQUEUE = {
    "GRACE_SECONDS": 20,
    "TASK_MODULES": ["tasks", "reminders", "nightly", "saga", "audit"],
}

# (4) What the tasks themselves need; here, where mail goes. Seconds to connect, and for
# each answer of the server: well below the timeout of the task (postoffice/tasks.py),
# so that a mute server ends in an error that says so.
MAIL_TIMEOUT = 10
EMAIL_URL = env("EMAIL_URL", default="consolemail://")
MAIL_SETTINGS = mail_settings(EMAIL_URL, timeout=MAIL_TIMEOUT)
globals().update(MAIL_SETTINGS)
# Mails of Django itself are jobs: those about errors, to ADMINS.
PGQUEUE["EMAIL"] = {"through": through(MAIL_SETTINGS)}
# Who is asked to charge and to ship (orders/partners.py), and seconds for each answer.
PARTNERS_URL = env("PARTNERS_URL", default="http://127.0.0.1:8008")
PARTNERS_TIMEOUT = 10
# Who gets the digest of each day (postoffice/nightly.py), and a mail about each error.
POSTMASTERS = env.list("POSTMASTERS", default=["postmaster@example.org"])
ADMINS = as_admins(POSTMASTERS)
DEFAULT_FROM_EMAIL = "Post office <post-office@example.org>"

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"

# A request of 1,000 mails of ordinary size.
DATA_UPLOAD_MAX_MEMORY_SIZE = 10 * 1024 * 1024  # Bytes.

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "{asctime} {levelname:7} {name} {message}", "style": "{"}
    },
    "filters": {
        "live": {"()": "django.utils.log.RequireDebugFalse"},
        "debug": {"()": "django.utils.log.RequireDebugTrue"},
    },
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "line"},
        "django": {"class": "logging.StreamHandler", "filters": ["debug"]},
        # A view that fails does not wait for the mail server, too.
        "admins": {
            "class": "django.utils.log.AdminEmailHandler",
            "level": "ERROR",
            "filters": ["live"],
            **TO_QUEUE,
        },
    },
    "loggers": {
        "django": {"handlers": ["django", "admins"], "level": "INFO"},
        "postoffice": {"handlers": ["console"], "level": "INFO"},
    },
}
