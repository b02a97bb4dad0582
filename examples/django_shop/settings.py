"""What the command needs: the project as an installed application, and a cache that processes share."""

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "only-for-the-example")
INSTALLED_APPS = ["examples.django_shop"]
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
        "LOCATION": os.environ.get("SHOP_CACHE", "/var/tmp/shop-cache"),
    }
}
