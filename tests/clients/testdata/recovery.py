"""A publisher and a consumer that outlive the nodes of a cluster, with pika. Arguments: a queue, and the URL of each node."""

import os
import random
import sys
import threading
import time

import pika
from pika.exceptions import AMQPError, NackError

queue, urls = sys.argv[1], sys.argv[2:]
stopping = threading.Event()


def say(word, number):
    """Prints a line at once: threads do not mix theirs."""
    os.write(1, f"{word} {number}\n".encode())


def connect():
    """Connects to any node. pika tries one after the other, and the whole of that may take some time: a node may wait for an owner."""
    nodes = [pika.URLParameters(url) for url in random.sample(urls, len(urls))]
    for node in nodes:
        node.heartbeat = 10
        node.socket_timeout = 5
        node.stack_timeout = 20
    return pika.BlockingConnection(nodes)


def again(work):
    """Repeats work, which ends only by an error, until the program is told to stop. pika has no recovery."""
    while not stopping.is_set():
        try:
            work()
        except AMQPError as e:
            print(f"{work.__name__}: {e!r}", file=sys.stderr, flush=True)
            time.sleep(0.2)


published = 0


def publish():
    global published
    with connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        while not stopping.is_set():
            try:
                channel.basic_publish("", queue, str(published).encode(), pika.BasicProperties(delivery_mode=2))
            except NackError:
                continue
            say("confirmed", published)
            published += 1
            connection.sleep(0.02)


def consume():
    with connect() as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.basic_qos(prefetch_count=100)
        for method, _, body in channel.consume(queue):
            say("received", body.decode())
            channel.basic_ack(method.delivery_tag)


threading.Thread(target=again, args=[consume], daemon=True).start()
publisher = threading.Thread(target=again, args=[publish])
publisher.start()


sys.stdin.read()
stopping.set()
publisher.join()
say("published", published)
while True:  # the consumer goes on until the program is killed
    time.sleep(60)
