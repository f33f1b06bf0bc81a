"""Chromium, driven over the WebDriver protocol by the standard library: no package is needed, only Debian's
``chromium`` and ``chromium-driver``.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def missing() -> str:
    """What there is not, to drive a browser with; empty where all is there."""
    names = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"needs {' and '.join(names)}: apt-get install chromium chromium-driver" if names else ""


class Browser:
    """One window of a fresh profile, while inside."""

    def __init__(self, width: int = 1280, height: int = 860, dark: bool = False) -> None:
        self._size, self._dark = (width, height), dark

    def __enter__(self) -> Self:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._profile = tempfile.TemporaryDirectory(prefix="weft-chromium-", ignore_cleanup_errors=True)
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}", "--silent"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._base = f"http://127.0.0.1:{port}"
        self._session = ""
        try:
            wait(lambda: self._up(), 20, "chromedriver")
            flags = [*FLAGS, f"--user-data-dir={self._profile.name}", f"--window-size={self._size[0]},{self._size[1]}"]
            flags += ["--blink-settings=preferredColorScheme=0"] if self._dark else []
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": {"args": flags, "binary": shutil.which("chromium")},
            }
            found = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/session/{found['sessionId']}"
            metrics = {"width": self._size[0], "height": self._size[1], "deviceScaleFactor": 1, "mobile": False}
            self.devtools("Emulation.setDeviceMetricsOverride", metrics)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, RuntimeError):
            if self._session:
                self._call("DELETE", self._session)
        self._driver.terminate()
        self._driver.wait()
        self._profile.cleanup()

    @property
    def pid(self) -> int:
        """The driver's process, of which Chromium's are descendants."""
        return self._driver.pid

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self._call("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body gives in the page."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str) -> str:
        """The text of the first element that matches; empty where none does."""
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def click(self, selector: str) -> None:
        """Click the first element that matches, once there is one."""
        clicked = "const e = document.querySelector(arguments[0]); e?.click(); return Boolean(e)"
        wait(lambda: self.run(clicked, selector), 10, selector)

    def devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        """A command of Chromium's own protocol."""
        return self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, *, whole: bool = False) -> bytes:
        """What is seen, as PNG; with ``whole`` the page to its end."""
        options: dict[str, Any] = {"format": "png"}
        if whole:
            height = self.run("return document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": self._size[0], "height": height, "scale": 1}
            options |= {"captureBeyondViewport": True, "clip": clip}
        return base64.b64decode(self.devtools("Page.captureScreenshot", options)["data"])

    def errors(self) -> list[str]:
        """What the page's scripts complained of, since this was asked last."""
        found = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found if entry["level"] == "SEVERE"]

    def _up(self) -> bool:
        try:
            return bool(self._call("GET", "/status")["ready"])
        except OSError:
            return False

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode(errors='replace')[:1000]}") from None


def wait(until: Callable[[], Any], seconds: float, what: str) -> Any:
    """What ``until`` gives, once that is something. Fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        if found := until():
            return found
        assert time.monotonic() < deadline, f"no {what} after {seconds:.0f} s"
        time.sleep(0.1)
