import json
import os

import django
from django.conf import settings

settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"],
    "NAME": os.environ["PGDATABASE"], "USER": os.environ["PGUSER"]}})
django.setup()

from django.db import connection, models, transaction  # noqa: E402


class Payment(models.Model):
    id = models.TextField(primary_key=True)
    status = models.TextField()

    class Meta:
        app_label = "shop"
        db_table = "payments"


payment_id, data = "pay-1", {"amount": 42}

# README: django
