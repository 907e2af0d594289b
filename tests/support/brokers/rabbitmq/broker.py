"""A private RabbitMQ node: its own cookie, epmd and folder, listening on 127.0.0.1 only.

    with Node() as node: ...                 Debian's /usr/lib/rabbitmq
    with Node(root=install()) as node: ...   a folder made by rabbitmq4_install
    python tests/support/brokers/rabbitmq/broker.py [ROOT]     start, print the URLs, stop on Ctrl-C

Stops what it started by process id only. Works as root and as any other user.
"""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support.brokers.started import Started
from support.ports import free_ports
from support.servers.hostile import certificate
from support.waiting import PATIENCE, STARTUP

PACKAGED = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PLUGINS = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
_LOCAL_ONLY = "-kernel inet_dist_use_interface {127,0,0,1}"
_AT_REST = "+sbwt none +sbwtdcpu none +sbwtdio none"
"""Schedulers that have nothing to do wait instead of spinning."""
_COUNTING = "-rabbit core_metrics_gc_interval 86400000"
"""What a client sent just before it died is counted, however late that is collected (rabbit_core_metrics_gc
forgets the counters of dead channels, every two minutes if not told)."""
_CONFIGURATION = """\
vm_memory_high_watermark.absolute = 2GB
disk_free_limit.absolute = 50MB
log.file.level = info
collect_statistics_interval = 300
management.tcp.ip = 127.0.0.1
management.tcp.port = {http_port}
listeners.ssl.1 = 127.0.0.1:{tls_port}
ssl_options.cacertfile = {certificate}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {certificate}
"""


class Node(Started):
    """One node in a temporary folder. `url` and `http` hold the user guest; `tls_port` is for AMQP over TLS,
    with a certificate that `ca_file` trusts; `kill` is kill -9."""

    def __init__(
        self,
        root: Path | None = None,
        conf: str = "",
        epmd: int | None = None,
        plugins: Sequence[str] = PLUGINS,
    ) -> None:
        """`epmd`: the port of one that runs already; without it the node has its own."""
        self.root = str(root.resolve()) if root else ""
        self.bin = f"{self.root}/usr/lib/rabbitmq/bin"
        self.folder = Path(tempfile.mkdtemp(prefix="rabbit-"))
        self.port, self.http_port, self.tls_port, distribution, own_epmd = free_ports(5)
        self.name = f"n{self.port}@localhost"
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        self.http = f"http://127.0.0.1:{self.http_port}"
        self.ca_file = str(certificate(self.folder, "DNS:localhost", "IP:127.0.0.1"))
        self.environment = self._prepare(conf, distribution, epmd or own_epmd, plugins)
        self.process: subprocess.Popen[bytes] | None = None

    def _prepare(self, conf: str, distribution: int, epmd: int, plugins: Sequence[str]) -> dict[str, str]:
        folder = {name: self.folder / name for name in ("home", "mnesia", "log", "etc")}
        for path in folder.values():
            path.mkdir()
        (folder["etc"] / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
        ours = _CONFIGURATION.format(
            http_port=self.http_port, tls_port=self.tls_port, certificate=self.ca_file
        )
        (folder["etc"] / "rabbitmq.conf").write_text(ours + conf)
        erlang = f"{self.root}/usr/lib/erlang/bin:" if self.root else ""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RABBITMQ_", "ERL_", "ERLANG_"))}
        return {
            **kept,
            "PATH": f"{self.bin}:{erlang}{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": str(folder["home"]),
            "LC_ALL": "C.UTF-8",
            "RUNNING_UNDER_SYSTEMD": "true",  # exec the beam: no shell between us and it
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP": "/dev/null",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{_LOCAL_ONLY} {_AT_REST} {_COUNTING}",
            "RABBITMQ_MNESIA_BASE": str(folder["mnesia"]),
            "RABBITMQ_LOG_BASE": str(folder["log"]),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(folder["etc"] / "none"),
            "RABBITMQ_CONFIG_FILE": str(folder["etc"] / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder["etc"] / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder["etc"] / "enabled_plugins"),
        }

    def start(self) -> "Node":
        """Start the node (again, with what it has on disk) and wait until it serves."""
        with open(self.folder / "log" / "out", "ab") as out:
            self.process = subprocess.Popen(
                [f"{self.bin}/rabbitmq-server"], env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + STARTUP
        while not self._serves():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"rabbitmq-server did not start:\n{self.log()[-3000:]}")
            time.sleep(0.1)

    def _serves(self) -> bool:
        """Whether both ports answer; to ask by rabbitmqctl would take a second of CPU."""
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            self.api("GET", "whoami")
        except (OSError, HTTPException, AssertionError):
            return False
        return True

    def log(self) -> str:
        """What the node has logged."""
        files = sorted(path for path in (self.folder / "log").iterdir() if path.is_file())
        return "\n".join(path.read_text(errors="replace") for path in files)

    def evaluate(self, expression: str) -> str:
        """What the node makes of an Erlang expression, which costs a hundredth of `rabbitmqctl eval`; again
        where a busy epmd has not answered. Raises RuntimeError."""
        erlang, deadline = f"{self.root}/usr/lib/erlang", time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(
                [f"{erlang}/bin/erl_call", "-sname", self.name, "-e"], env=self.environment,
                input=f"{expression}.\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            if done.returncode == 0 and done.stdout.startswith("{ok,"):
                return done.stdout
            if done.returncode == 0 or time.monotonic() > deadline:
                raise RuntimeError(f"{expression}: {done.stdout}")
            time.sleep(1)

    def write_to_disk(self) -> None:
        """What a node writes by itself some seconds later, without which a quorum queue comes back empty from
        a kill (3.10, 4.3): dets keep where its log lies, and in 3.10 Mnesia keeps what there is."""
        self.evaluate("catch mnesia:sync_log(), [dets:sync(Table) || Table <- dets:all()]")

    def limit_memory(self, limit: str = '{absolute, "2GB"}') -> None:
        """What `rabbitmqctl set_vm_memory_high_watermark` calls; a tiny share is an alarm at once."""
        self.evaluate(f"ok = vm_memory_monitor:set_vm_memory_high_watermark({limit})")

    def api(self, method: str, *path: str, **body: object) -> object:
        """METHOD /api/path as guest, each part quoted: ten times cheaper than rabbitmqctl."""
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE)
        login = base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        address = "/".join(["/api", *(quote(part, safe="") for part in path)])
        connection.request(method, address, json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status < 300, f"{method} {address}: {answer.status} {content!r}"
        return json.loads(content) if content else None

    def kill(self) -> None:
        """kill -9 of the node; `start` brings it back with what had reached the disk."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._end_the_rest()

    def revive(self) -> None:
        """Start it where it was killed; what runs, runs on."""
        if self.process is None or self.process.poll() is not None:
            self.start()

    def shut_down(self) -> None:
        """End the node in order, as for an upgrade; `start` brings it back."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(PATIENCE)
        self._end_the_rest()

    def url_of(self, vhost: str) -> str:
        """The URL of a virtual host."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    def _own(self) -> Iterator[int]:
        """The node, its epmd and helpers: they carry our HOME in their environment."""
        mark = f"HOME={self.folder}/home".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    yield int(path.parent.name)

    def _end_the_rest(self) -> None:
        """epmd never ends by itself. Until it is gone its port is taken."""
        for end, seconds in ((signal.SIGTERM, 1.0), (signal.SIGKILL, PATIENCE)):
            for pid in self._own():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, end)
            deadline = time.monotonic() + seconds
            while list(self._own()) and time.monotonic() < deadline:
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop the node and remove its folder."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._end_the_rest()
        shutil.rmtree(self.folder, ignore_errors=True)


def _main(roots: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Node(Path(roots[0]) if roots else None) as node, contextlib.suppress(KeyboardInterrupt):
        assert node.process is not None
        print(f"url={node.url} http={node.http} folder={node.folder} pid={node.process.pid}", flush=True)
        node.process.wait()


if __name__ == "__main__":
    _main(sys.argv[1:])
