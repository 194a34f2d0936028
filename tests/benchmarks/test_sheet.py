"""The page of sortable tables, as text and, where there is one, in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from moeplan.benchmarks.report.sheet import Column, Section, Table, render_sheet

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TABLE = Table(
    (Column("name"), Column("value"), Column("why", words=True)),
    (
        (False, ("ring<9>", "10.50 %", "b")),
        (True, ("auto", "9.20 %", "a")),
        (False, ("snake", "-", "c")),
        (False, ("cliques", "1,000.00 %", "d")),
    ),
)


def page() -> str:
    return render_sheet("test", "A title & more", "One sentence.", [Section("Part", "About.", table=TABLE)])


def first_cells(html: str) -> list[str]:
    return re.findall(r'<th scope="row">(.*?)</th>', html)


def test_content_is_escaped_and_nothing_is_loaded():
    html = page()
    assert "ring&lt;9&gt;" in html
    assert "A title &amp; more" in html
    assert not re.findall(r"(?:src|href)=|url\(|@import", html)
    assert first_cells(html) == ["ring&lt;9&gt;", "auto", "snake", "cliques"]


def test_same_bytes_twice():
    assert page() == page()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(
    ("column", "order"),
    [
        (0, ["auto", "cliques", "ring&lt;9&gt;", "snake"]),
        (1, ["auto", "ring&lt;9&gt;", "cliques", "snake"]),  # as numbers; what has none comes last
        (2, ["auto", "ring&lt;9&gt;", "snake", "cliques"]),
    ],
)
def test_a_browser_sorts_the_table(tmp_path, column, order):
    path = tmp_path / "page.html"
    path.write_text(page(), encoding="utf-8")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    address = f"{path.as_uri()}#sort=0:{column}"
    shown = subprocess.run(
        [BROWSER, *flags, "--virtual-time-budget=2000", "--dump-dom", address],
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert first_cells(shown.stdout) == order
    sorted_by = re.findall(r'aria-sort="(\w+)"', shown.stdout)
    assert sorted_by == ["ascending" if i == column else "none" for i in range(3)]
