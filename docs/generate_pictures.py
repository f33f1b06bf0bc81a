"""Make the pictures of docs/dashboard.md: ``python docs/generate_pictures.py ROOT`` with Debian's chromium.

ROOT holds runs, one of which trains in workers. A view is pictured once it shows what it should; a run that has no such
view is said to be missing, and its picture left as it is.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "dashboard")]

from browser import Browser, wait  # noqa: E402

from weft.dashboard.access import Access  # noqa: E402
from weft.dashboard.library import Library  # noqa: E402
from weft.dashboard.server import Dashboard  # noqa: E402

LAPTOP, PHONE = (1280, 860), (390, 844)
CHARTS = "return document.querySelectorAll('.charts canvas').length >= 2"
EVALUATED = "return document.querySelector(\"[data-metric='eval/return_mean'] canvas\") !== null"
LOADED = (
    "return [...document.querySelectorAll('.media img, .media video')].every((m) => m.complete || m.readyState > 1)"
)
VIEWS: dict[str, tuple[str, str]] = {
    "dataflow": ("workers", "return document.querySelector('.flowchart')?.textContent.includes('KiB/s')"),
    "curves": ("seeds", CHARTS),
    "evaluation": ("seeds", EVALUATED),
    "compare": ("pair", "return document.querySelectorAll('#view tbody tr').length > 1"),
    "logs": ("workers", "return document.querySelector('pre.log')?.textContent.length > 60"),
    "videos": ("video", f"const m = document.querySelector('.media'); if (!m) return false; {LOADED}"),
    "lineage": ("population", "return document.querySelector('svg.lineage') !== null"),
    "payoffs": ("league", "return document.querySelector('.payoffs') !== null"),
    "details": ("seeds", "return document.querySelectorAll('#view tbody tr').length > 10"),
}
"""By the picture's name: the kind of run that it needs, and what is true of the page once it is there."""

TABS = {"evaluation": "curves", "videos": "pictures", "lineage": "pictures", "payoffs": "pictures"}


def chosen(library: Library) -> dict[str, list[str]]:
    """The ids of the runs to look at, by kind; the first is the one looked at, the others are ticked."""
    runs = {run.name: run for run in library.runs()}
    locked = library.locked()
    found: dict[str, list[str]] = {}
    for run in runs.values():
        if run.state(locked) == "training" and len(run.plan.get("groups", [])) > 1:
            found.setdefault("workers", [run.id])
        if run.lineage.get("rounds"):
            found.setdefault("population", [run.id])
        if run.payoffs.get("versions"):
            found.setdefault("league", [run.id])
        if run.videos():
            found.setdefault("video", [run.id])
    seeds = [run.id for name, run in sorted(runs.items()) if "seed" in name]
    others = [run.id for name, run in sorted(runs.items()) if name.endswith("-rate")]
    if seeds and others:
        found["seeds"], found["pair"] = [*seeds, *others], [seeds[0], *others]
    return found


def look(browser: Browser, base: str, view: str, runs: list[str], theme: str, together: bool) -> None:
    """Open a view, and wait until it is there."""
    browser.run("localStorage.setItem('weft-theme', arguments[0])", theme)
    query = f"run={runs[0]}&tab={TABS.get(view, view)}&with={','.join(runs[1:])}&together={int(together)}"
    browser.open("about:blank")
    browser.open(f"{base}/#{query}")
    wait(lambda: browser.run(VIEWS[view][1]), 60, view)
    if view == "evaluation":
        find = "const f = document.querySelector('.tools input'); f.value = 'eval'; f.dispatchEvent(new Event('input'))"
        browser.run(find)
        wait(lambda: browser.run(EVALUATED), 20, view)
    wait(lambda: browser.text("#link span") == "live", 20, "connection")
    browser.run("return new Promise((r) => setTimeout(r, 1500))")


def main(root: str, target: str = str(PICTURES)) -> int:
    """Serve the runs of a folder, and picture every view: on a laptop in both themes, and on a phone."""
    folder, out = Path(root).absolute(), Path(target).absolute()
    os.chdir(folder.parent)  # the page names the folder of runs: let it be "runs", not a path of this machine
    library = Library(Path(folder.name))
    server = Dashboard(library, Access("127.0.0.1"), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    runs, missing = chosen(library), []
    out.mkdir(parents=True, exist_ok=True)
    base = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        for size, themes in ((LAPTOP, ("light", "dark")), (PHONE, ("light",))):
            with Browser(*size) as browser:
                browser.open(server.url)
                for theme in themes:
                    for view, (kind, _) in VIEWS.items():
                        if kind not in runs:
                            missing.append(view)
                            continue
                        look(browser, base, view, runs[kind], theme, together=view == "curves")
                        name = (
                            f"dashboard-{view}{'-dark' if theme == 'dark' else ''}{'-phone' if size is PHONE else ''}"
                        )
                        (out / f"{name}.png").write_bytes(
                            browser.screenshot(whole=size is LAPTOP and view not in ("logs", "curves"))
                        )
                complaints: Any = browser.errors()
                if complaints:
                    print("\n".join(complaints), file=sys.stderr)
    finally:
        server.close()
        thread.join()
    if missing:
        print(f"no run for: {', '.join(sorted(set(missing)))}", file=sys.stderr)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
