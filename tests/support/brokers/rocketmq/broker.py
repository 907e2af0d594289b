"""Private RocketMQ clusters for tests: name server and brokers.

    python tests/support/brokers/rocketmq/broker.py [VERSION]   start, print the URL, stop on Ctrl-C

4.9 listens on all addresses, and so does the HA port of every version: where root allows it the Java
processes live in a network namespace of their own, and only this host reaches them, over a pair of
virtual interfaces. Stops what it started by process id only.
"""

import atexit
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support.brokers.rocketmq.driver import CHECK_MAX, OP_BATCH_INTERVAL_MS, AdminCode
from support.brokers.rocketmq.install import VERSIONS, install
from support.brokers.rocketmq.namespace import namespace
from support.brokers.started import Started, run_until_ended
from support.jvm import QUICK, compiled
from support.ports import BLOCKS, free_ports
from support.waiting import PATIENCE, STARTUP

from dlq.connectors.rocketmq.link import lenient_json
from dlq.connectors.rocketmq.link.connection import Access, Link
from dlq.connectors.rocketmq.link.remoting import RequestCode

PROGRAMS = Path(__file__).resolve().parent
"""Where the Java programs of the tests lie."""
PORTS = (free_ports(1, BLOCKS)[0] for _ in itertools.count())
"""Ten apart: a broker listens on the next one, too, and on that two below."""
_OPEN = [
    argument
    for package in ("java.nio", "java.util", "java.lang", "jdk.internal.ref", "sun.nio.ch")
    for argument in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
] + [
    argument
    for package in ("jdk.internal.ref", "sun.nio.ch")
    for argument in ("--add-exports", f"java.base/{package}=ALL-UNNAMED")
]
_CONFIGURATION: Mapping[str, object] = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": 0,
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "flushDiskType": "ASYNC_FLUSH",
    "brokerRole": "ASYNC_MASTER",
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxIndexNum": 400_000,
    "maxHashSlotNum": 100_000,
    "diskMaxUsedSpaceRatio": 95,
    "timerWheelEnable": "false",
    "messageDelayLevel": " ".join(["1s"] * 18),
    **{  # or a broker that stood still for seconds refuses what waited meanwhile
        f"waitTimeMillsIn{queue}Queue": 60_000
        for queue in ("Send", "Pull", "LitePull", "Heartbeat", "Transaction", "Ack", "AdminBroker")
    },
    "osPageCacheBusyTimeOutMills": 60_000,
    "serverChannelMaxIdleTimeSeconds": 3600,  # a test may have long to do between two questions
    "fileReservedTime": 72,
    "transactionTimeOut": 500,
    "transactionCheckInterval": 500,
    "transactionCheckMax": CHECK_MAX,
    "transactionOpBatchInterval": OP_BATCH_INTERVAL_MS,
    "transactionMetricFlushInterval": 200,  # 5.x waits for the first flush without sleeping, 10 s if not told
}


class RocketMQ(Started):
    """One name server and `nodes` masters. `kill` is kill -9; what the operating system has is kept."""

    def __init__(
        self,
        version: str,
        nodes: int = 1,
        jvm: Sequence[str] = QUICK,
        controller: str = "",
        **configuration: object,
    ) -> None:
        """`controller`: where one elects masters, if any (5.x); `configuration` is the brokers'."""
        self.version, self.jars, self.jvm = version, install(version), jvm
        self.folder = Path(tempfile.mkdtemp(prefix="rocketmq-"))
        self.namespace = namespace()
        self.name_server = f"{self.namespace.address}:{next(PORTS)}"
        self.url = f"rocketmq://{self.name_server}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}
        self._controller = controller
        for letter in "abc"[:nodes]:
            self._configure(f"broker-{letter}", configuration)
        (self.folder / "conf").mkdir(exist_ok=True)
        for name in ("namesrv", "broker", "tools"):  # 4.9 does not start without them
            log = '<configuration><root level="WARN"/></configuration>'
            (self.folder / f"conf/logback_{name}.xml").write_text(log)
        atexit.register(self.stop)

    def _configure(self, node: str, extra: Mapping[str, object]) -> None:
        host, port = self.namespace.address, next(PORTS)
        own = {
            "brokerName": node, "namesrvAddr": self.name_server, "brokerIP1": host, "brokerIP2": host,
            "bindAddress": host, "listenPort": port, "haListenPort": port + 1,
            "storePathRootDir": self.folder / node,
        }  # fmt: skip
        lines = [f"{key}={value}\n" for key, value in {**_CONFIGURATION, **own, **extra}.items()]
        (self.folder / f"{node}.conf").write_text("".join(lines))
        self.addresses[node] = f"{host}:{port}"

    def start(self) -> None:
        """Start everything; returns when the name server lists every broker."""
        host, _, port = self.name_server.partition(":")
        (self.folder / "namesrv.conf").write_text(f"listenPort={port}\nbindAddress={host}\n")
        if self._controller:
            settings = {"Group": "c", "Peers": f"n0-{self._controller}", "SelfId": "n0"}
            lines = [f"controllerDLeger{name}={value}\n" for name, value in settings.items()]
            store = f"controllerStorePath={self.folder / 'controller'}\nlistenPort={next(PORTS)}\n"
            (self.folder / "controller.conf").write_text("".join([*lines, store, f"bindAddress={host}\n"]))
            self._spawn("controller", "controller.ControllerStartup", "256m", b"boot success")
        self.revive()

    def revive(self) -> None:
        """Start what does not run."""
        if "namesrv" not in self._processes:
            self._spawn("namesrv", "namesrv.NamesrvStartup", "256m", b"The Name Server boot success")
        for node in (node for node in self.addresses if node not in self._processes):
            self.start_node(node)

    def start_slave(self, node: str, of: str = "broker-a") -> None:
        """Start one more broker, which follows the master of `of`; see `promote`."""
        self._configure(node, {"brokerName": of, "brokerId": 1, "brokerRole": "SLAVE"})
        self.revive_slave(node)

    def revive_slave(self, node: str) -> None:
        """Start what `start_slave` has configured, whatever its part is by now."""
        self._spawn(node, "broker.BrokerStartup", "1g", b"boot success")
        self._announce(node)

    def promote(self, node: str) -> None:
        """Let a slave that is down be its group's master, as an operator does where no controller is."""
        self.kill(node)
        with (self.folder / f"{node}.conf").open("a") as configuration:
            configuration.write("brokerId=0\nbrokerRole=ASYNC_MASTER\n")
        self.revive_slave(node)

    def start_node(self, node: str = "broker-a") -> None:
        """Start one broker."""
        self._spawn(node, "broker.BrokerStartup", "1g", b"boot success")
        self._register(node)

    @contextmanager
    def in_use(self) -> Iterator[Self]:
        """For one test. Between tests its brokers stand still: one of 5.x that has nothing to do takes a
        fifteenth of a core, and its name server may have given it up when it goes on."""
        went_on = self._send_to_brokers(signal.SIGCONT)
        self.revive()
        for node in went_on:
            self._announce(node)
            self._register(node)
        yield self
        self._send_to_brokers(signal.SIGSTOP)

    def _send_to_brokers(self, what: signal.Signals) -> Sequence[str]:
        """Those that run."""
        running = [node for node in self.addresses if node in self._processes]
        for node in running:
            self._processes[node].send_signal(what)
        return running

    def _register(self, node: str) -> None:
        """5.x registers at its start only where its connection to the name server is up by then, else 10 s
        later (BrokerOuterAPI.registerBrokerAll)."""
        deadline = time.monotonic() + STARTUP
        while node not in self.registered():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{node} has not registered")
            self._announce(node)
            time.sleep(0.05)

    def _announce(self, node: str) -> None:
        """Let a broker register: a permission that is set makes it do so."""
        link = Link(self.addresses[node], Access(timeout=PATIENCE))
        link.call(AdminCode.SET_BROKER_CONFIG, {}, b"brokerPermission=6")
        link.close()

    def registered(self) -> Mapping[str, object]:
        link = Link(self.name_server, Access(timeout=PATIENCE))
        try:
            table = lenient_json.loads(link.call(RequestCode.CLUSTER, {}).body.decode())
            return dict(table.get("brokerAddrTable") or {})
        finally:
            link.close()

    def java(self, main: str, *arguments: str, heap: str = "256m", classes: str = "") -> list[str]:
        """The command that runs a class of RocketMQ (or of ours, from `classes`) inside the namespace."""
        home = f"-Duser.home={self.folder}", f"-Drocketmq.home.dir={self.folder}"
        memory = "-Xms64m", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=512m"
        path = f"{classes}:{self.jars}/*" if classes else f"{self.jars}/*"
        return [
            *self.namespace.enter,
            "java",
            *memory,
            *_OPEN,
            *home,
            f"-Djava.io.tmpdir={self.folder}",  # what is killed leaves its libraries of C there
            "-Dtls.server.mode=disabled",  # to make a certificate takes a third of a start
            "-Drocketmq.client.rebalance.waitInterval=1000",  # ms; a round that fails is made up for soon
            *self.jvm,
            "-cp",
            path,
            main,
            *arguments,
        ]

    def start_proxy(self) -> str:
        """Start what gRPC clients talk to; returns its address."""
        port = next(PORTS)
        ports = {"grpcServerPort": port, "remotingListenPort": port + 1}
        settings = {"rocketMQClusterName": "DefaultCluster", **ports}
        configuration = self.folder / "proxy.json"
        configuration.write_text(json.dumps(settings))
        where = ("-pm", "cluster", "-n", self.name_server, "-pc", str(configuration))
        self._spawn("proxy", "proxy.ProxyStartup", "512m", b"rocketmq-proxy startup successfully", where)
        return f"{self.namespace.address}:{port}"

    def grpc(self, source: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program of the gRPC client, whose classes bear the same names as the proxy's."""
        jars = f"{self.jars}/grpc/*"
        path = f"{compiled({source.stem: source.read_text()}, jars)}:{jars}"
        command = ["java", *QUICK, "-cp", path, f"-Duser.home={self.folder}", source.stem, *arguments]
        self._processes[source.stem] = process = subprocess.Popen(
            [*self.namespace.enter, *command], cwd=self.folder, stdin=subprocess.DEVNULL
        )
        return process

    def _spawn(
        self, name: str, main: str, heap: str, ready: bytes, arguments: Sequence[str] | None = None
    ) -> None:
        """After a kill somebody's outgoing connection may hold the port for a moment."""
        for attempts_left in (2, 1, 0):
            try:
                self._spawn_once(name, main, heap, ready, arguments or ("-c", f"{self.folder}/{name}.conf"))
            except RuntimeError as error:
                if "Address already in use" not in str(error) or not attempts_left:
                    raise
                time.sleep(3)
            else:
                return

    def _spawn_once(self, name: str, main: str, heap: str, ready: bytes, arguments: Sequence[str]) -> None:
        command = self.java(f"org.apache.rocketmq.{main}", *arguments, heap=heap)
        environment = {**os.environ, "ROCKETMQ_HOME": str(self.folder)}
        log = self.folder / f"{name}.out"
        start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=environment,
            )
        self._processes[name] = process
        deadline = time.monotonic() + STARTUP
        while ready not in (said := log.read_bytes()[start:]):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} does not start: {said[-2000:].decode(errors='replace')}")
            time.sleep(0.05)

    def pid(self, name: str = "broker-a") -> int:
        """The process id of a broker, or of `namesrv`."""
        return self._processes[name].pid

    def kill(self, name: str = "broker-a", how: signal.Signals = signal.SIGKILL) -> None:
        """End one process and wait for it."""
        process = self._processes.pop(name, None)
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(PATIENCE)

    def stop(self) -> None:
        """End everything and remove the data."""
        for name in reversed(list(self._processes)):
            self.kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def admin(self, *arguments: str, timeout: float = PATIENCE) -> str:
        """What the official mqadmin prints; its exit status is 0 whatever happens."""
        main = "org.apache.rocketmq.tools.command.MQAdminStartup"
        command = self.java(main, *arguments, "-n", self.name_server)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, cwd=self.folder
        )
        return done.stdout + done.stderr


if __name__ == "__main__":
    cluster = RocketMQ(*sys.argv[1:] or VERSIONS[:1])
    run_until_ended(cluster, cluster.url)
