"""A headless Chromium for tests, driven over its DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import websocket
from support.waiting import PATIENCE, STARTUP, eventually


class Page:
    """One open page. `problems` collects what it logged, threw, or tried to load."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._number = 0
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.held: list[str] = []
        """Requests that `hold` keeps from the server."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its answer."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            thrown = parameters["exceptionDetails"].get("exception", {})
            self.problems.append(thrown.get("description", "exception"))
        elif method == "Runtime.consoleAPICalled":
            self.problems.append(f"console.{parameters['type']}: {parameters['args']}")
        elif method == "Log.entryAdded":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"dialog: {parameters['message']}")
            self.call("Page.handleJavaScriptDialog", accept=True)
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Fetch.requestPaused":
            self.held.append(parameters["requestId"])

    def hold(self, pattern: str) -> None:
        """Keep requests of such addresses waiting, until `release`."""
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])

    def release(self) -> None:
        """Let all that wait go on; those that the page has given up are over."""
        for one in self.held:
            with suppress(AssertionError):
                self.call("Fetch.continueRequest", requestId=one)
        self.call("Fetch.disable")

    def open(self, url: str, width: int = 1200, height: int = 900, **media: str) -> None:
        """Navigate, and wait until the page has loaded. `media` are features, e.g. prefers_color_scheme."""
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        self.call("Page.navigate", url=url)
        eventually(lambda: self.shows("document.readyState === 'complete' && location.href") == url)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        how = {"returnByValue": True, "awaitPromise": True, "allowUnsafeEvalBlockedByCSP": False}
        answer = self.call("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def shows(self, expression: str) -> Any:
        """The same; None while a page is being left, or what is asked for is not there."""
        try:
            return self.run(expression)
        except AssertionError:
            return None

    def press(self, key: str, text: str = "") -> None:
        """One key, as a keyboard sends it; `text`: what it writes."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key, 0)
        for kind, typed in (("keyDown", text), ("keyUp", "")):
            sent = {"type": kind, "key": key, "code": key, "text": typed, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", **sent)

    def type(self, keys: str) -> None:
        """One key after another, each a letter."""
        for key in keys:
            self.press(key, key)

    def picture(self, path: Path, whole: bool = True) -> None:
        """A screenshot as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium() -> Iterator[Page]:
    """A page of a fresh Chromium with a profile of its own."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "no Chromium: apt-get install chromium"
    profile = Path(tempfile.mkdtemp(prefix="dlq-chromium-"))
    process = subprocess.Popen(
        [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--remote-debugging-port=0",
            f"--user-data-dir={profile}", "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(profile)},
    )  # fmt: skip
    try:
        socket = websocket.create_connection(_page_url(profile), timeout=PATIENCE, suppress_origin=True)
        yield Page(socket)
        socket.close()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(profile, ignore_errors=True)


def _page_url(profile: Path) -> str:
    port_file = profile / "DevToolsActivePort"
    port = eventually(lambda: port_file.exists() and port_file.read_text().split(), STARTUP)[0]

    def pages() -> list[str]:
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as answer:
            return [one["webSocketDebuggerUrl"] for one in json.load(answer) if one["type"] == "page"]

    return eventually(pages)[0]
