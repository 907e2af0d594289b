"""A network namespace for servers that listen on all addresses, where root allows one."""

import atexit
import functools
import os
import shutil
import subprocess


class Namespace:
    """A network of its own for the Java processes, reached at `address`; the loopback without root."""

    def __init__(self) -> None:
        self.name = f"rmq{os.getpid()}"
        self.address, self.enter = "127.0.0.1", []
        if os.geteuid() == 0 and shutil.which("ip") is not None:
            self._make()

    def _make(self) -> None:
        net = f"10.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        inside, outside = f"{self.name}i", f"{self.name}o"
        commands = (
            f"netns add {self.name}",
            f"link add {outside} type veth peer name {inside} netns {self.name}",
            f"address add {net}.1/30 dev {outside}",
            f"link set {outside} up",
            f"-n {self.name} address add {net}.2/30 dev {inside}",
            f"-n {self.name} link set {inside} up",
            f"-n {self.name} link set lo up",
        )
        atexit.register(self.remove)
        if all(
            subprocess.run(["ip", *c.split()], check=False, capture_output=True).returncode == 0
            for c in commands
        ):
            self.address, self.enter = f"{net}.2", ["ip", "netns", "exec", self.name]

    def remove(self) -> None:
        """Take the namespace and with it both interfaces away."""
        subprocess.run(["ip", "link", "del", f"{self.name}o"], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


@functools.cache
def namespace() -> Namespace:
    """The one namespace of this process."""
    return Namespace()
