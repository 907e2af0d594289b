"""The images of Containerfile, and what deploy/ makes of them in Kubernetes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support.environments import ROOT, release_script
from support.waiting import PATIENCE

TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
USER = 10001
ENTRY = "/usr/local/bin/dlq"


def stages() -> dict[str, list[str]]:
    """Stage -> its instructions, with those of the stage that it begins with."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in TEXT.replace("\\\n", " ").splitlines():
        if begun := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            current = found[begun[2]] = list(found.get(begun[1], []))
        elif line and not line.startswith("#"):
            current.append(line)
    return found


def builder() -> str | None:
    """What builds images here: podman or buildah, where it works."""
    for name in filter(shutil.which, ("podman", "buildah")):
        if subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            return name
    return None


BUILDER = builder()


def python_of_all() -> str | None:
    """A Python that the image's user may run, too: that of the tests may lie in a home."""
    supported = "import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))"
    become = ("setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "env")
    for found in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        tried = subprocess.run([*become, found, "-c", supported], capture_output=True, check=False)
        if tried.returncode == 0:
            return found
    return None


@pytest.mark.parametrize("target", ["slim", "spark"])
def test_an_image_belongs_to_nobody_and_starts_dlq_itself(target: str) -> None:
    """As process 1 it gets the signals of a stop, which a shell would keep to itself."""
    said = stages()[target]
    assert [line for line in said if line.startswith("USER")][-1] == f"USER {USER}:{USER}"
    assert f'ENTRYPOINT ["{ENTRY}"]' in said
    installs = [line for line in said if line.startswith("RUN") and "pip" in line]
    assert all("--no-deps" in line for line in installs)


@pytest.mark.skipif(BUILDER is None, reason="neither podman nor buildah works here: the steps are run below")
@pytest.mark.parametrize("target", ["slim", "spark"])
def test_an_image_is_built(target: str) -> None:
    assert BUILDER is not None
    subprocess.run([BUILDER, "build", "--target", target, "--tag", f"dlq-test:{target}", ROOT], check=True)
    words = [BUILDER, "run", "--rm", "--read-only", "--tmpfs", "/tmp", f"dlq-test:{target}", "demo"]
    if BUILDER == "podman":
        assert "0 sent, 24 already in the ledger" in subprocess.check_output(words, text=True)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the steps of the slim image leave, in a folder that takes the place of /: /opt, /src and /var."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a root that cannot be written, and a user of its own")
    if (python := python_of_all()) is None:
        pytest.skip("no Python 3.11 to 3.13 that others than root can run")
    place = Path("/opt/dlq-image-of-a-test")
    shutil.rmtree(place, ignore_errors=True)
    (place / "usr/local/bin").mkdir(parents=True)
    source = release_script("dist").committed(tmp_path_factory.mktemp("clone"))
    known = stages()
    for line in known["build"] + known["slim"]:
        word, _, rest = line.partition(" ")
        if word == "RUN":
            inside = re.sub(r"(?<![\w.])/(opt/dlq|var/lib|usr/local)\b", rf"{place}/\1", rest)
            inside = inside.replace("python -m venv", f"{python} -m venv")
            subprocess.run(["sh", "-ec", inside], cwd=source, check=True)
    yield place
    shutil.rmtree(place)


def contained(image: Path, *words: str) -> list[str]:
    """A command as the image runs it: as its user, on a root that cannot be written but for /tmp and the
    archive."""
    archive = image / "var/lib/dlq"
    steps = (
        "mount --make-rprivate /",
        f"mount --bind {archive} {archive}",
        "mount -t tmpfs -o mode=1777 tmpfs /tmp",
        "mount -o remount,bind,ro /",
        f"cd {archive}",
        f'exec setpriv --reuid {USER} --regid {USER} --clear-groups "$@"',
    )
    as_root = ("unshare", "--mount", "sh", "-ec", "; ".join(steps), "sh")
    return [*as_root, "env", "-i", "HOME=/tmp", str(image / ENTRY.lstrip("/")), *words]


def test_the_steps_of_the_image_make_one_that_runs_on_a_root_that_cannot_be_written(image: Path) -> None:
    told = subprocess.run(contained(image, "demo"), capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "0 sent, 24 already in the ledger" in told.stdout
    assert "Read-only file system" not in told.stderr


def test_what_it_is_given_to_write_is_the_archive_and_tmp(image: Path) -> None:
    def code(path: str) -> int:
        return subprocess.run([*contained(image, "demo", "--folder", path)], capture_output=True).returncode

    assert [code(path) for path in ("/opt/tour", "/var/tour", "/tmp/tour", "tour")] == [2, 2, 0, 0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_a_pull_as_ctrl_c_does(image: Path, number: signal.Signals) -> None:
    """Of a broker that takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        port = silent.getsockname()[1]
        (image / "var/lib/dlq/dlq.toml").write_text(
            f'[brokers.shop]\nkind = "kafka"\nurl = "kafka://127.0.0.1:{port}"\n'
            '[sources.orders]\nbroker = "shop"\ntopic = "orders-dlt"\n'
        )
        words = contained(image, "-c", "dlq.toml", "pull")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            taken, _ = silent.accept()
            running.send_signal(number)
            _, said = running.communicate(timeout=PATIENCE)
            taken.close()
    assert running.returncode == 130, said
    assert said.splitlines()[-1].startswith("dlq: interrupted")


def documents() -> list[Any]:
    found = [yaml.safe_load_all(path.read_text()) for path in sorted((ROOT / "deploy").glob("*.yaml"))]
    return [one for many in found for one in many]


@pytest.mark.parametrize("one", documents(), ids=lambda one: one["kind"])
def test_kubernetes_accepts_what_is_in_deploy(one: Any) -> None:
    kubernetes_validate.validate(one, "1.31", strict=True)


def pods() -> dict[str, Any]:
    specs = {one["kind"]: one["spec"] for one in documents()}
    return {
        "CronJob": specs["CronJob"]["jobTemplate"]["spec"]["template"],
        "Deployment": specs["Deployment"]["template"],
    }


@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_a_pod_runs_the_image_as_it_was_tried(kind: str) -> None:
    pod = pods()[kind]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == USER
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert "command" not in container
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/etc/dlq", "/var/lib/dlq", "/tmp"}
    claims = [
        one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one
    ]
    names = {one["metadata"]["name"] for one in documents() if one["kind"] == "PersistentVolumeClaim"}
    assert set(claims) == names
    assert container["image"] == f"dlq:{version('dlq')}"


def test_the_network_policy_is_for_every_pod_of_dlq() -> None:
    (policy,) = [one for one in documents() if one["kind"] == "NetworkPolicy"]
    wanted = policy["spec"]["podSelector"]["matchLabels"]
    assert all(wanted.items() <= pod["metadata"]["labels"].items() for pod in pods().values())
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
