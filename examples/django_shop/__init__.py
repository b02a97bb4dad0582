"""A Django project whose cache forgets users that changed: `manage.py forget_changed_users`."""
