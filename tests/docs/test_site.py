"""The site: every page is in its menu and has a command; what is generated is current; it builds without a warning."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']?https?:|<link[^>]+rel=["']?stylesheet["']?[^>]+https?:"""
)


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_menu():
    menu = re.findall(r"- (docs/[\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text())
    assert sorted(menu) == sorted(str(page.relative_to(ROOT)) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_without_a_command(page):
    assert re.search(r"(^|`|\$ )(weft [a-z]|python |make )|^```python", page.read_text(), re.MULTILINE)


def test_the_api_page_is_current():
    assert script("generate_api").page() == (ROOT / "docs" / "api.md").read_text(), "run: python docs/generate_api.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [sys.executable, ROOT / "docs" / "site.py", target], capture_output=True, text=True, env=quiet, check=False
    )
    assert built.returncode == 0, built.stderr
    return target


def test_the_site_builds_and_fetches_nothing_from_elsewhere(site):
    for page in PAGES:
        built = site / page.relative_to(ROOT).with_suffix(".html")
        assert built.exists()
        assert not ELSEWHERE.search(built.read_text())


def test_code_in_tables_has_its_bars_and_no_backslash(site):
    built = (site / "docs" / "coming-from.html").read_text()
    assert "<code>--plan &quot;env*4 &#124; act &#124; learn&quot;</code>" in built
    for page in PAGES:
        cells = re.findall(r"<td[^>]*>.*?</td>", (site / page.relative_to(ROOT).with_suffix(".html")).read_text())
        assert not [cell for cell in cells if r"\|" in cell]


def test_a_link_that_leads_nowhere_fails(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n\n[gone](gone.md) [here](#nowhere)\n")
    lines = (ROOT / "mkdocs.yml").read_text().partition("nav:")[0].replace("build/site", "docs")
    (tmp_path / "mkdocs.yml").write_text(lines)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "gone.md" in ended.stderr
    assert "#nowhere" in ended.stderr
