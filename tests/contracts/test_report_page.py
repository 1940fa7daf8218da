"""The report in a real browser, wide and narrow: its drawings are drawn, nothing is cut off, nothing is loaded."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import findings as made

from tuner.export.report_formats import report_html

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (1280, 420)
WATCH = """
addEventListener("error", e => parent.errors.push(e.message));
addEventListener("securitypolicyviolation", e => parent.asked.push(e.blockedURI));
"""
LOOK = """
const seen = {errors: window.errors, asked: window.asked};
const page = document.querySelector("iframe").contentDocument;
const wider = (inner, outer) => inner > outer + 1;
seen.drawings = [...page.querySelectorAll(".js-plotly-plot")].map(plot => plot.id);
seen.empty = [...page.querySelectorAll(".js-plotly-plot")].filter(p => !p.querySelector(".trace")).map(p => p.id);
seen.cut = [page.documentElement, ...page.querySelectorAll(".scroll, .js-plotly-plot")]
  .filter(e => wider(e.scrollWidth, e.clientWidth)).map(e => e.id || e.innerText.slice(0, 40));
seen.overlapping = [...page.querySelectorAll(".panels > div")].filter((panel, place, all) =>
  place && panel.getBoundingClientRect().left < all[place - 1].getBoundingClientRect().right - 1
  && panel.getBoundingClientRect().top < all[place - 1].getBoundingClientRect().bottom - 1).length;
document.querySelector("pre").textContent = JSON.stringify(seen);
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here"),
]


def looked_at(folder: Path, page: str, width: int) -> dict[str, Any]:
    """What a browser shows of a page in a frame of this width (CSS pixels)."""
    watch = f"<script>{WATCH}</script>"
    (folder / "page.html").write_text(page.replace("<head>", f"<head>{watch}", 1), encoding="utf-8")
    frame = f'<iframe src="page.html" style="border:0; width:{width}px; height:900px"></iframe>'
    script = (
        f"window.errors = []; window.asked = []; addEventListener('load', () => setTimeout(() => {{ {LOOK} }}, 2000));"
    )
    (folder / "frame.html").write_text(
        f"<!doctype html><body><script>{script}</script>{frame}<pre></pre></body>", encoding="utf-8"
    )
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
            f"--user-data-dir={folder}/profile", "--window-size=1600,1000", "--virtual-time-budget=10000",
            "--timeout=120000", "--dump-dom", (folder / "frame.html").as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    found = re.search(r"<pre>(\{.*\})</pre>", done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:] + done.stderr[-2000:]
    return dict(json.loads(html.unescape(found[1])))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_is_drawn_whole_without_network(tmp_path: Path, width: int) -> None:
    seen = looked_at(tmp_path, report_html(made.findings()), width)
    assert (seen["errors"], seen["asked"]) == ([], [])
    assert {"figure-front", "figure-ablation", "figure-load-output_tok_s"} <= set(seen["drawings"])
    assert seen["empty"] == []
    assert seen["cut"] == []
    assert seen["overlapping"] == 0


def test_the_look_finds_what_it_looks_for(tmp_path: Path) -> None:
    page = report_html(made.findings()).replace(
        "<main>",
        '<main><p style="width:2000px">wide</p><script>nothing()</script><img src="http://127.0.0.1:9/gone.png">',
        1,
    )
    seen = looked_at(tmp_path, page, WIDTHS[0])
    assert "nothing is not defined" in seen["errors"][0]
    assert seen["asked"] == ["http://127.0.0.1:9/gone.png"]
    assert len(seen["cut"]) == 1
