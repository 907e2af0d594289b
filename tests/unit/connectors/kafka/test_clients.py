"""Clients of librdkafka: waits that it takes, and one of which nobody waits for the answers any more."""

import subprocess
import sys

from confluent_kafka import Consumer
from support.rows import each_row

from dlq.connectors.kafka.link import clients
from dlq.connectors.kafka.plugin.description import KafkaBroker

ABANDONED = """
import gc, threading
from confluent_kafka import TopicCollection
from dlq.connectors.kafka.look.cluster import Cluster
from dlq.connectors.kafka.plugin.description import KafkaBroker

gc.disable()
looked = threading.Event()

def look_for_garbage(_answered):
    gc.collect()
    looked.set()

cluster = Cluster(KafkaBroker("shop", "kafka", url="kafka://127.0.0.1:1"))
ask = lambda admin: admin.describe_topics(TopicCollection(["x"]), request_timeout=0.5)
cluster._ask(ask)["x"].add_done_callback(look_for_garbage)
del cluster
assert looked.wait(120)
"""


def test_a_client_that_is_garbage_is_not_freed_in_its_own_thread() -> None:
    done = subprocess.run([sys.executable, "-c", ABANDONED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@each_row("wait", ["1ms", "5m", "6m", "1h"])
def test_each_wait_that_a_configuration_may_name_is_one_that_the_library_takes(wait: str) -> None:
    broker = KafkaBroker("b", "kafka", url="kafka://127.0.0.1:1", timeout=wait)
    Consumer({**clients._settings(broker), "group.id": "g"}).close()
