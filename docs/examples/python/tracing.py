"""A trace that goes on behind the topic: the span that captures a payment is the parent of the one that handles its event."""
import os

import psycopg
from confluent_kafka import Consumer
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
tracer = trace.get_tracer("payments")


# ---- the writer ------------------------------------------------------------------------------------------------------

def trace_events(connection):
    """The events of this transaction carry the current span's context."""
    carrier = {}
    propagate.inject(carrier)
    names = ("traceparent", "tracestate", "baggage")
    connection.execute(
        "SELECT " + ", ".join(f"set_config('outbox.{name}', %s, true)" for name in names),  # true: SET LOCAL
        [carrier.get(name, "") for name in names])


def capture(connection, payment_id):
    with tracer.start_as_current_span("capture payment"), connection.transaction():
        trace_events(connection)
        connection.execute("UPDATE payments SET status = 'captured' WHERE id = %s", [payment_id])
        connection.execute("SELECT outbox.add_event(%s, 'captured', '{}', aggregate_type => 'payment')", [payment_id])


# ---- the consumer ----------------------------------------------------------------------------------------------------

def context_of(message):
    return propagate.extract({name: value.decode() for name, value in message.headers() if value is not None})


def handle(message):
    with tracer.start_as_current_span("send receipt", context=context_of(message), kind=trace.SpanKind.CONSUMER) as span:
        span.set_attribute("payment", message.key().decode())
        span.set_attribute("user", str(baggage.get_baggage("user", context_of(message))))


with psycopg.connect(os.environ["DSN"], autocommit=True) as db:
    token = context.attach(baggage.set_baggage("user", "alice"))
    capture(db, "pay-1")
    context.detach(token)

consumer = Consumer({"bootstrap.servers": os.environ["BROKERS"], "group.id": "receipts", "auto.offset.reset": "earliest"})
consumer.subscribe([os.environ["TOPIC"]])
while (message := consumer.poll(1.0)) is None or message.error():
    pass
handle(message)
consumer.close()
