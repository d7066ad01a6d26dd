"""The app's tests have settings of their own: `manage.py test postoffice` runs them."""

collect_ignore = ["postoffice"]
