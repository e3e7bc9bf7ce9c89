import os

import psycopg
from psycopg.types.json import Json

connection = psycopg.connect(os.environ["DSN"], autocommit=True)
payment_id, data = "pay-1", {"amount": 42}

# README: psycopg
