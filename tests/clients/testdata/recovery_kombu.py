"""A publisher and a consumer that outlive the nodes of a cluster, with kombu. Arguments: a queue, and the URL of each node."""

import os
import sys
import threading
import time

from kombu import Connection, Queue
from kombu.mixins import ConsumerMixin

queue = Queue(sys.argv[1], durable=True)
stopping = threading.Event()


def say(word, number):
    """Prints a line at once: threads do not mix theirs."""
    os.write(1, f"{word} {number}\n".encode())


def connection():
    """Describes a connection to any node. It is made when it is needed, and again when it is lost."""
    return Connection(
        ";".join(sys.argv[2:]), failover_strategy="shuffle", connect_timeout=20, heartbeat=10, transport_options={"confirm_publish": True},
    )


def note(error, interval):
    print(f"{error!r}, again in {interval} s", file=sys.stderr, flush=True)


# max_retries=None is for ever. 541 is raised nevertheless: kombu takes it for an error that does not pass.
policy = {"max_retries": None, "interval_start": 0, "interval_step": 0.2, "interval_max": 1, "errback": note}
published = 0


def publish():
    global published
    while not stopping.is_set():
        with connection() as c:
            producer = c.Producer()
            try:
                while not stopping.is_set():
                    producer.publish(str(published), routing_key=queue.name, declare=[queue], retry=True, retry_policy=policy)
                    say("confirmed", published)
                    published += 1
                    time.sleep(0.02)
            except c.connection_errors + c.channel_errors as e:
                note(e, 0.2)
                time.sleep(0.2)


class Consumer(ConsumerMixin):
    connection = connection()

    def get_consumers(self, Consumer, channel):
        return [Consumer([queue], callbacks=[self.received], prefetch_count=100)]

    def received(self, body, message):
        say("received", body)
        message.ack()

    on_connection_error = staticmethod(note)


threading.Thread(target=Consumer().run, daemon=True).start()
publisher = threading.Thread(target=publish)
publisher.start()
sys.stdin.read()
stopping.set()
publisher.join()
say("published", published)
while True:  # the consumer goes on until the program is killed
    time.sleep(60)
