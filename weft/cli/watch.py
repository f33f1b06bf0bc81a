"""``weft watch``."""

from __future__ import annotations

import os
import signal
import sys
import threading
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from weft.cli.flags import Flags, parse
from weft.core.errors import ConfigError
from weft.core.setting import check_settings, setting
from weft.runtimes.prepare.settings import Settings

ABOUT = (
    "Watch runs in a browser: the dataflow live, curves, what differs, logs, videos. Serves one page, from the runs' "
    "folders alone, and changes nothing in them. It ends with Ctrl-C. Without RUN, all runs in the folder of runs."
)

USUAL_PORT = 8765


@dataclass(frozen=True)
class WatchFlags:
    """Which runs, and where the page is."""

    runs: tuple[str, ...] = setting((), "names of runs, or their folders; unless said, all in --root", argument="RUN")
    root: Path = setting(Settings.root, "the folder that runs are in")
    host: str = setting("127.0.0.1", "the address to listen on; other than loopback, others on the network reach it")
    port: int | None = setting(
        None, f"the port; 0: a free one; unless set: {USUAL_PORT}, or a free one", at_least=0, at_most=65535
    )
    token: str | None = setting(None, "what the page asks for; unless set, made anew")
    allow_host: str | None = setting(None, "a name of this machine that browsers may call it by, as behind a proxy")
    browser: bool = setting(False, "open the page in a browser")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.token is not None and (
            len(self.token) < 16 or not self.token.replace("-", "").replace("_", "").isalnum()
        ):
            raise ConfigError("--token: expected at least 16 letters, digits, - or _")


def main(command: str, arguments: list[str]) -> int:
    """Parse, serve until interrupted."""
    (given,) = parse("weft watch", ABOUT, arguments, Flags(WatchFlags))
    _serve(WatchFlags(**given))
    return 0


def _serve(flags: WatchFlags) -> None:
    from weft.dashboard.access import Access, is_loopback
    from weft.dashboard.library import Library
    from weft.dashboard.server import Dashboard

    library = Library(flags.root, flags.runs)
    hosts = (flags.allow_host,) if flags.allow_host else ()
    access = Access(flags.host, flags.token, hosts)
    try:
        server = Dashboard(library, access, flags.host, USUAL_PORT if flags.port is None else flags.port)
    except ConfigError:
        if flags.port is not None:
            raise
        server = Dashboard(library, access, flags.host, 0)
    with suppress(OSError):
        os.nice(10)  # training comes first
    print(f"watching {len(library.runs())} runs in {flags.root}", file=sys.stderr)
    if not is_loopback(flags.host):
        print("anyone on the network who has the token can look; the connection is not encrypted", file=sys.stderr)
    print(server.url, flush=True)
    if flags.browser:
        webbrowser.open(server.url)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    thread = threading.Thread(target=server.serve_forever, name="dashboard")
    thread.start()
    try:
        stop.wait()
    finally:
        server.close()
        thread.join()
