"""Reads COUNT events of a topic as they come, and then prints for each the number in it and the clock's time, in nanoseconds, when it
was there. consumer.py BOOTSTRAP TOPIC COUNT"""

import re
import sys
import time

from confluent_kafka import Consumer, TopicPartition

bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "fetch.min.bytes": 1})
consumer.assign([TopicPartition(topic, 0, 0)])
got = []
while len(got) < count:
    message = consumer.poll(1)
    if message is not None:
        if message.error():
            raise RuntimeError(message.error())
        got.append((message.value(), time.time_ns()))
for value, at in got:
    print(re.match(rb'\{"n": ?(\d+)', value)[1].decode(), at)
consumer.close()
