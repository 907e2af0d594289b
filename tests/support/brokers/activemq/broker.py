"""Real ActiveMQ brokers on 127.0.0.1 for the tests: Classic 5.18.6, 6.3.1 and, for a look at what is older,
5.17.6 from plain jars, Artemis 2.56.0.

    python tests/support/brokers/activemq/broker.py install   fetches all of them from Maven Central, once
    python tests/support/brokers/activemq/broker.py run 5.18.6   prints its ports, runs until stdin closes

Each broker has temporary data and free ports and is stopped by its own pid.
"""

import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support.brokers.started import Started
from support.jvm import BROKERS, QUICK, compiled, copy_dependencies, maven
from support.ports import free_ports
from support.servers.hostile import certificate
from support.waiting import STARTUP

HERE = Path(__file__).resolve().parent
_AMQP_CLIENT = {"5.17.6": "1.15.0", "5.18.6": "1.15.0", "6.3.1": "2.9.0"}
"""Classic -> the Qpid JMS client of the same JMS (javax or jakarta)."""
OLDER, *_CLASSIC = _AMQP_CLIENT
CLASSIC = tuple(_CLASSIC)
ARTEMIS = "2.56.0"
VERSIONS = (*CLASSIC, ARTEMIS)
_POM = HERE / "pom.xml"
_WITHOUT_ROUTE = """<address-settings><address-setting match="noroute.#">
    <dead-letter-address>DLQ</dead-letter-address><send-to-dla-on-no-route>true</send-to-dla-on-no-route>
</address-setting>"""
_SEALED = """<security-settings><security-setting match="sealed.#">
    <permission type="createDurableQueue" roles="amq"/><permission type="createAddress" roles="amq"/>
    <permission type="send" roles="amq"/><permission type="consume" roles="amq,readers"/>
    <permission type="browse" roles="amq"/>
</security-setting><security-setting match="forbidden.#">
    <permission type="createDurableQueue" roles="amq"/><permission type="createAddress" roles="amq"/>
    <permission type="send" roles="nobody"/><permission type="consume" roles="amq"/>
    <permission type="browse" roles="amq"/>
</security-setting>"""
_ACCEPTOR_FOR_TLS = """<acceptors><acceptor name="tls">tcp://127.0.0.1:{port}?sslEnabled=true;\
keyStoreType=PEM;keyStorePath={keys};protocols=STOMP,OPENWIRE;supportAdvisory=false</acceptor>"""
_MIRROR = """<broker-connections><amqp-connection uri="tcp://127.0.0.1:{broker.stomp}" name="mirror" \
user="{broker.user}" password="{broker.password}" retry-interval="100"><mirror/></amqp-connection>\
</broker-connections>"""
_CLUSTER = """<connectors><connector name="own">tcp://127.0.0.1:{own}</connector>
<connector name="other">tcp://127.0.0.1:{other}</connector></connectors>
<cluster-user>nodes</cluster-user><cluster-password>secret</cluster-password>
<cluster-connections><cluster-connection name="pair"><connector-ref>own</connector-ref>
    <retry-interval>100</retry-interval><message-load-balancing>ON_DEMAND</message-load-balancing><max-hops>1</max-hops>
    <static-connectors><connector-ref>other</connector-ref></static-connectors>
</cluster-connection></cluster-connections>"""
_READS = """<restrict><commands><command>read</command><command>list</command><command>version</command>\
<command>search</command></commands></restrict>"""
"""What Classic's own jolokia-access.xml allows from 5.19.7 and 6.2.6 on."""
_AGENT = "org.jolokia:jolokia-agent-jvm:2.6.0:jar:javaagent"


def folder_of(version: str) -> Path:
    """Where `install` puts a version; other jars go elsewhere."""
    jars = f"-{sha256(_POM.read_bytes()).hexdigest()[:8]}" if version in _AMQP_CLIENT else ""
    return BROKERS / f"activemq-{version}{jars}"


def install(version: str) -> Path:
    """Fetch one version into `.brokers`; returns at once when it is there."""
    folder = folder_of(version)
    if folder.exists():
        return folder
    BROKERS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BROKERS, prefix="fetching-") as work:
        fetched = _fetch_artemis(Path(work)) if version == ARTEMIS else _fetch_classic(Path(work), version)
        fetched.rename(folder)
    return folder


def _fetch_classic(work: Path, version: str) -> Path:
    target = work / "lib"
    copy_dependencies(_POM, target, f"-Damq={version}", f"-Dqpid={_AMQP_CLIENT[version]}")
    maven("dependency:copy", f"-Dartifact={_AGENT}", f"-DoutputDirectory={target / 'agent'}", folder=work)
    return target


def _fetch_artemis(work: Path) -> Path:
    artifact = f"org.apache.artemis:apache-artemis:{ARTEMIS}:tar.gz:bin"
    maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={work}", folder=work)
    with tarfile.open(next(work.glob("*.tar.gz"))) as archive:
        archive.extractall(work, filter="data")
    return work / f"apache-artemis-{ARTEMIS}"


def _program(name: str, jars: Path, jms: str = "javax.jms") -> list[str]:
    """What `java` is told to run a program beside this file."""
    product = "Artemis" if name.startswith("Artemis") else "ActiveMq"
    texts = {path.stem: path.read_text().replace("javax.jms", jms) for path in HERE.glob(f"{product}*.java")}
    return ["-cp", f"{compiled(texts, f'{jars}/*')}:{jars}/*", name]


class ActiveMq(Started):
    """One broker process: a folder, readiness by a STOMP CONNECTED, an end by pid."""

    artemis = False
    _jms = "javax.jms"
    user = password = ca_file = ""

    def __init__(
        self,
        version: str,
        *options: str,
        heap: str = "512m",
        jvm: Sequence[str] = QUICK,
        data: Path | None = None,
    ) -> None:
        """`data`: the store of another broker, for which this one waits until that one has ended."""
        self.version, self.options, self.jvm = version, options, (f"-Xmx{heap}", *jvm)
        if "users" in options:
            self.user, self.password = "dlq", "right"
        if version.startswith("6."):
            self._jms = "jakarta.jms"
        self.home = install(version)
        self.folder = Path(tempfile.mkdtemp(prefix="dlq-activemq-"))
        self.data = data or self.folder / "data"
        self.log = self.folder / "broker.log"
        self.stomp, self.openwire, self.web, self.tls, self.openwire_tls, self.amqp = free_ports(6)
        self.process: subprocess.Popen[bytes] | None = None
        self.jolokia = f"http://127.0.0.1:{self.web}/jolokia/"
        (self.folder / "jolokia-access.xml").write_text(_READS if "reads" in options else "<restrict/>")

    @property
    def url(self) -> str:
        """The broker's address as a configuration names it."""
        user = f"{self.user}@" if self.user else ""
        return f"stomp://{user}127.0.0.1:{self.stomp}"

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start, or start again on the same data and ports after stop() or kill()."""
        deadline = time.monotonic() + STARTUP
        self.begin()
        assert self.process
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"no broker within {STARTUP} s:\n{said}")
            time.sleep(0.1)

    def begin(self) -> None:
        """Start without waiting: it may have to wait itself for the store of another broker."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder
            )

    def stop(self) -> None:
        """Let it end in order: SIGTERM, then SIGKILL after 15 s."""
        if self.process and self.running():
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def ready(self) -> bool:
        """True once a STOMP CONNECT is answered: an open port alone proves nothing."""
        frame = f"CONNECT\naccept-version:1.2\nhost:x\nlogin:{self.user}\npasscode:{self.password}\n\n\0"
        try:
            with socket.create_connection(("127.0.0.1", self.stomp), 2) as link:
                link.sendall(frame.encode())
                return link.recv(64).startswith(b"CONNECTED")
        except OSError:
            return False

    def command(self) -> list[str]:
        """ActiveMqBroker.java, which starts the broker of its class path."""
        agent = next((self.home / "agent").glob("*.jar"))
        keys = [f"-Djavax.net.ssl.keyStore={self.folder}/keys.p12", "-Djavax.net.ssl.keyStorePassword=secret"]
        return [
            "java", *self.jvm, *keys,
            f"-javaagent:{agent}=host=127.0.0.1,port={self.web},discoveryEnabled=false"
            f",policyLocation=file://{self.folder}/jolokia-access.xml",
            *_program("ActiveMqBroker", self.home, self._jms),
            str(self.data), str(self.stomp), str(self.openwire),
            f"amqp={self.amqp}", *self.options,
        ]  # fmt: skip

    def java(
        self, source: str, *arguments: str, log: IO[bytes] | None = None, **properties: str | int
    ) -> subprocess.Popen[str]:
        """Start a client program beside this file with the broker's own client jars, on Artemis with those of
        Classic, unless the program is for Artemis; `log` gets its log."""
        given = {
            "ow": self.openwire, "amqp": self.amqp, "user": self.user, "password": self.password,
            **properties,
        }  # fmt: skip
        settings = [f"-D{name}={value}" for name, value in given.items()]
        own = self.home / "lib" if self.artemis else self.home
        jars = install(CLASSIC[0]) if self.artemis and not source.startswith("Artemis") else own
        program = _program(source.removesuffix(".java"), jars, self._jms)
        command = ["java", *QUICK, *settings, *program, *arguments]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log or subprocess.PIPE, text=True
        )


class Artemis(ActiveMq):
    """Artemis from its distribution; one acceptor speaks STOMP, OpenWire, Core and AMQP, another two of them
    over TLS, with a certificate that `ca_file` trusts. The user `reader` (password `reads`) may consume, and
    browse all but queues `sealed.*`."""

    artemis = True
    user = password = "admin"

    def __init__(
        self,
        version: str = ARTEMIS,
        *,
        heap: str = "512m",
        mirror: "Artemis | None" = None,
        cluster: "Sequence[Artemis] | None" = None,
    ) -> None:
        """`mirror` gets a copy of all that comes here; `cluster`: one node that is there for a second one, or
        none for a first."""
        super().__init__(version, heap=heap)
        self._more = _MIRROR.format(broker=mirror) if mirror else ""
        if cluster is not None:
            self._more = _CLUSTER.format(own=self.stomp, other=[*cluster, self][0].stomp)
        self.openwire = self.amqp = self.stomp
        self.jolokia = f"http://127.0.0.1:{self.web}/console/jolokia/"
        subprocess.run(
            [
                f"{self.home}/bin/artemis", "create", "--silent", "--require-login",
                "--user", self.user, "--password", self.password,
                "--host", "127.0.0.1", "--default-port", f"{self.stomp}",
                "--http-host", "127.0.0.1", "--http-port", f"{self.web}", "--relax-jolokia",
                "--no-amqp-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor", "--no-hornetq-acceptor",
                "--no-autotune", "--nio", "--java-memory", heap, f"{self.folder}/instance",
            ],
            check=True, stdout=subprocess.DEVNULL, env=os.environ | {"JAVA_ARGS": " ".join(QUICK)},
        )  # fmt: skip
        profile = self.folder / "instance" / "etc" / "artemis.profile"
        quick = profile.read_text().replace("-XX:+UseG1GC -XX:+UseStringDeduplication", " ".join(QUICK))
        profile.write_text(quick)
        self._configure(self.folder / "instance" / "etc")

    def _configure(self, folder: Path) -> None:
        self.ca_file = str(certificate(self.folder, "IP:127.0.0.1"))
        acceptor = _ACCEPTOR_FOR_TLS.format(port=self.openwire_tls, keys=self.ca_file)
        text = (folder / "broker.xml").read_text()
        for known, wanted in (
            ("<address-settings>", _WITHOUT_ROUTE),
            ("<acceptors>", acceptor),
            # A disk that is nearly full ends producers; here it is the machine's, and no test's matter.
            ("<max-disk-usage>90<", "<max-disk-usage>100<"),
            ('<permission type="consume" roles="amq"/>', '<permission type="consume" roles="amq,readers"/>'),
            ('<permission type="browse" roles="amq"/>', '<permission type="browse" roles="amq,readers"/>'),
            ("<security-settings>", f"{self._more}{_SEALED}"),
            ("<max-disk-usage>90<", "<max-disk-usage>100<"),  # the machine's disk is not what is tested
        ):
            text = text.replace(known, wanted, 1)
        (folder / "broker.xml").write_text(text)
        for file, line in (("users", "reader = reads"), ("roles", "readers = reader")):
            with (folder / f"artemis-{file}.properties").open("a") as out:
                out.write(f"\n{line}\n")

    def ready(self) -> bool:
        """The web server answers later than the acceptor: after a restart by a second or more."""
        try:
            socket.create_connection(("127.0.0.1", self.web), 1).close()
        except OSError:
            return False
        return super().ready()

    def command(self) -> list[str]:
        """The script ends in `exec java`: its pid is the broker's."""
        return [f"{self.folder}/instance/bin/artemis", "run"]


def broker_of(version: str, *options: str) -> ActiveMq:
    """The broker of a version, not yet started; `options` are those of ActiveMqBroker.java."""
    return Artemis(version) if version == ARTEMIS else ActiveMq(version, *options)


def main() -> None:
    """The command line of the module's docstring."""
    command, *versions = sys.argv[1:]
    if command == "install":
        for version in versions or (OLDER, *VERSIONS):
            print(install(version))
        return
    with broker_of(versions[0], *versions[1:]) as broker:
        print(f"stomp={broker.stomp} openwire={broker.openwire} jolokia={broker.jolokia}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
