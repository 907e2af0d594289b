"""Private Kafka nodes for tests: broker and controller in one process (KRaft), on 127.0.0.1 alone.

    python tests/support/brokers/kafka/broker.py [VERSION]   start, print the URL, stop on Ctrl-C or SIGTERM

Stops what it started by process id only.
"""

import atexit
import base64
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from support.brokers.kafka.install import VERSIONS, install
from support.brokers.started import Started, run_until_ended
from support.jvm import QUICK
from support.ports import free_ports
from support.servers.hostile import certificate
from support.waiting import PATIENCE, STARTUP

_PROTOCOL = {"BEHIND": "PLAINTEXT"}
_CONFIGURATION: Mapping[str, object] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": 3000,  # a node that was killed may come back after that
    "broker.heartbeat.interval.ms": 500,
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.share.heartbeat.interval.ms": 200,  # a member learns what it is to read by its second one
    "group.share.min.heartbeat.interval.ms": 200,
    "log.retention.check.interval.ms": 500,
    "log.initial.task.delay.ms": 200,
    "log.cleaner.backoff.ms": 300,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "auto.create.topics.enable": "false",
}


class Kafka(Started):
    """One node. `kill` is kill -9; what the operating system has is kept, and `start` goes on with it.

    `users` adds a listener with SASL PLAIN (user -> password), on which with `acl` only `admin` may do
    everything; without SASL everybody may. `tls` adds a listener with a certificate of 127.0.0.1. What
    listens at `behind` tells clients that it is at the port `front`, where a test may put something between.
    One `beside` another is a second broker of its cluster.
    """

    def __init__(
        self,
        version: str = VERSIONS[0],
        users: Mapping[str, str] | None = None,
        acl: bool = False,
        tls: bool = False,
        jvm: Sequence[str] = QUICK,
        beside: "Kafka | None" = None,
        **configuration: object,
    ) -> None:
        self.version, self.jars, self.jvm = version, install(version), jvm
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        plain, controller, sasl, ssl, behind, front = free_ports(6)
        self.bootstrap = f"127.0.0.1:{plain}"
        self.url = f"kafka://{self.bootstrap}"
        self.sasl_bootstrap, self.tls_bootstrap = f"127.0.0.1:{sasl}", f"127.0.0.1:{ssl}"
        self.ca = self.folder / "ca.pem"
        self.behind, self.front = f"127.0.0.1:{behind}", front
        listeners = {"PLAINTEXT": plain, "BEHIND": behind}
        settings = {**_CONFIGURATION, "log.dirs": self.folder / "log"}
        if users is not None:
            listeners["SASL_PLAINTEXT"] = sasl
            settings |= _with_passwords(users)
        if acl:
            settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            settings["super.users"] = "User:admin;User:ANONYMOUS"
        if tls:
            listeners["SSL"] = ssl
            settings |= self._with_certificate()
        told = [f"{name}://127.0.0.1:{port}" for name, port in listeners.items()]
        settings |= {
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": ",".join([*told, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join(told).replace(f":{behind}", f":{front}"),
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{name}:{_PROTOCOL.get(name, name)}" for name in listeners)]
            ),
            **{name.replace("_", "."): value for name, value in configuration.items()},
        }
        self._beside, self.controller = beside, controller
        if beside is not None:
            voters = f"1@127.0.0.1:{beside.controller}"
            settings |= {"process.roles": "broker", "node.id": 2, "controller.quorum.voters": voters}
            settings["listeners"] = ",".join(told)
        self._settings = self.folder / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        atexit.register(self.stop)

    def _with_certificate(self) -> dict[str, object]:
        certificate(self.folder, "IP:127.0.0.1").rename(self.ca)
        return {"ssl.keystore.location": self.ca, "ssl.keystore.type": "PEM"}

    def java(self, main: str, *arguments: str, heap: str = "256m", classes: str = "") -> list[str]:
        """The command that runs a class of Kafka, or one of ours (or of other jars) from `classes`, which
        come first."""
        path = f"{classes}:{self.jars}/*" if classes else f"{self.jars}/*"
        own = f"-Djava.io.tmpdir={self.folder}"  # what is killed leaves its libraries of C there
        return ["java", "-Xms64m", f"-Xmx{heap}", own, *self.jvm, "-cp", path, main, *arguments]

    def start(self) -> None:
        """Start it; returns when it leads what it holds."""
        if not (self.folder / "log" / "meta.properties").exists():
            self._format()
        log = self.folder / "broker.out"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                self.java("kafka.Kafka", str(self._settings), heap="512m"),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )
        deadline = time.monotonic() + STARTUP
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = log.read_bytes()[-2000:].decode(errors="replace")
                raise RuntimeError(f"Kafka {self.version} does not start: {said}")
            time.sleep(0.05)

    def _format(self) -> None:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.cluster = self._beside.cluster if self._beside else f"A{made[1:]}"  # no id starts with a dash
        arguments = ("format", "-t", self.cluster, "-c", str(self._settings))
        command = self.java("kafka.tools.StorageTool", *arguments, heap="128m")
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"Kafka {self.version} formats no folder: {done.stdout}{done.stderr}")

    def _is_up(self) -> bool:
        """Its port is open some time before it answers."""
        host, _, port = self.bootstrap.partition(":")
        try:
            socket.create_connection((host, int(port)), 1).close()
            client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            return bool(client.describe_cluster(request_timeout=20).result(PATIENCE).nodes)
        except (OSError, KafkaException):
            return False

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the process and wait for it."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(PATIENCE)

    def revive(self) -> None:
        """Let it answer again when it was frozen (SIGSTOP) or killed; what runs, runs on."""
        if self._process is None:
            self.start()
        else:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it and remove the data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _with_passwords(users: Mapping[str, str]) -> dict[str, object]:
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {known};",
    }


if __name__ == "__main__":
    node = Kafka(*sys.argv[1:] or VERSIONS[:1])
    run_until_ended(node, node.url)
