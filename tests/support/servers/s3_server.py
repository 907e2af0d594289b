"""A real S3-compatible server for tests, versitygw over a folder.

python tests/support/servers/s3_server.py install   into .brokers/versitygw, once
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.jvm import BROKERS
from support.ports import free_ports
from support.waiting import PATIENCE, STARTUP, eventually

PROGRAM = BROKERS / "versitygw" / "versitygw"
_VERSITYGW = "github.com/versity/versitygw/cmd/versitygw"
BUCKET = "letters"


def install() -> None:
    """Build the server; returns at once when it is there."""
    if not PROGRAM.exists():
        if shutil.which("go") is None:
            sys.exit("go is missing: install Go 1.24 or newer, https://go.dev/dl")
        build = ["go", "build", "-mod=readonly", "-buildvcs=false", "-o", str(PROGRAM), _VERSITYGW]
        subprocess.run(build, check=True, cwd=Path(__file__).with_name("versitygw"))


def why_missing(_kind: str) -> str | None:
    """Why the server cannot be started on this machine; None when it can."""
    return None if PROGRAM.exists() else "it was not built (needs go)"


class S3Server:
    """One server on a free port, over a folder of its own; `stop` removes both. It has one user beside its
    owner, who may do what `allow` says."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="s3-"))
        (self.folder / "data" / BUCKET).mkdir(parents=True)
        (self.folder / "accounts").mkdir()
        [self.port] = free_ports(1)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What a user of this server has in the environment."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "dlqtest", "AWS_SECRET_ACCESS_KEY": "dlqtest-secret",
            "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        }  # fmt: skip

    def start(self) -> None:
        user, secret = (self.environment[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
        given = {**os.environ, "ROOT_ACCESS_KEY": user, "ROOT_SECRET_KEY": secret}
        place = ["--iam-dir", str(self.folder / "accounts"), "--port", f"127.0.0.1:{self.port}"]
        place += ["posix", str(self.folder / "data")]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen([str(PROGRAM), *place], env=given, stdout=quiet, stderr=quiet)
        eventually(self._answers, STARTUP)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "versitygw ended"
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self.port)) == 0

    def allow(self, *actions: str) -> dict[str, str]:
        """What the other user has in the environment, who may list the bucket and do this with objects."""
        from botocore.session import get_session  # the server is fetched beside the libraries

        keys, user, secret = self.environment, "reader", "reader-secret"
        owner = ["--access", keys["AWS_ACCESS_KEY_ID"], "--secret", keys["AWS_SECRET_ACCESS_KEY"]]
        endpoint = ["--endpoint-url", keys["AWS_ENDPOINT_URL"]]
        create = ["create-user", "-a", user, "-s", secret, "-r", "user"]
        # One that is there already is refused.
        subprocess.run([str(PROGRAM), "admin", *owner, *endpoint, *create], check=False, capture_output=True)
        on_all = {"Effect": "Allow", "Principal": user, "Resource": f"arn:aws:s3:::{BUCKET}/*"}
        on_bucket = {"Effect": "Allow", "Principal": user, "Resource": f"arn:aws:s3:::{BUCKET}"}
        statements = [{**on_all, "Action": list(actions)}, {**on_bucket, "Action": ["s3:ListBucket"]}]
        client = get_session().create_client(
            "s3", endpoint_url=keys["AWS_ENDPOINT_URL"], region_name=keys["AWS_REGION"],
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
        )  # fmt: skip
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        client.put_bucket_policy(Bucket=BUCKET, Policy=policy)
        return {**keys, "AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": secret}

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    install()
