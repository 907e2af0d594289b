"""A client of which nobody waits for the answers any more."""

import subprocess
import sys

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
