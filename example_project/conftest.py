"""The apps' tests have settings of their own: `manage.py test` runs them."""

collect_ignore = ["postoffice", "counters", "orders"]
