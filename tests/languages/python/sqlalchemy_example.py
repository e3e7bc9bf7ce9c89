import json
import os

from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Payment(Base):
    __tablename__ = "payments"
    id: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]


engine = create_engine(os.environ["URL"].replace("postgresql:", "postgresql+psycopg:"))
payment_id, data = "pay-1", {"amount": 42}

# README: sqlalchemy
