"""The report in Debian's chromium: at two widths, light and dark; charts are drawn, and values appear on hover."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import CHROMIUM, WIDTHS, browse, framed
from folders import METHODS, config, diagnostics, make
from PIL import Image

from lab.report import report
from lab.results.run_folders import find_runs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("cache"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium (apt install chromium)"),
]

BYTES = {"bytes/up": 640_000, "bytes/down": 1_280_000}
PROBE = """<script>
setTimeout(() => {
  const box = document.querySelector(".u-over").getBoundingClientRect();
  document.querySelector(".u-over").dispatchEvent(new MouseEvent("mousemove",
    {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true}));
}, 300);
setTimeout(() => {
  const map = [...document.querySelectorAll(".heat")].find((each) => each.offsetParent);
  const place = map.getBoundingClientRect();
  map.dispatchEvent(new PointerEvent("pointermove",
    {clientX: place.right - 20, clientY: place.top + 8, bubbles: true}));
}, 300);
setTimeout(() => {
  document.querySelector("details").open = true;
}, 400);
setTimeout(() => {
  const painted = [...document.querySelectorAll("canvas")].map((canvas) =>
    canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0));
  document.body.dataset.probe = JSON.stringify({
    width: innerWidth, needed: document.documentElement.scrollWidth, painted,
    sharp: [...document.querySelectorAll("canvas")].every((canvas) =>
      Math.abs(canvas.width - devicePixelRatio * canvas.getBoundingClientRect().width) <= 1),
    paper: getComputedStyle(document.body).backgroundColor,
    reading: document.querySelector(".reading").innerText,
    narrow: [...document.querySelectorAll("details .chart")].filter((each) => each.clientWidth &&
      Math.abs(each.querySelector("canvas").getBoundingClientRect().width - each.clientWidth) > 1).length,
    legend: document.querySelector(".u-legend").innerText});
}, 900);
</script>"""


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("runs")
    for place, (method, overrides) in enumerate(METHODS.items()):
        figures = diagnostics(method)
        for seed in (1, 2):
            accuracy = [0.9 - (0.6 - 0.03 * place) * 0.8**t + 0.01 * seed for t in range(1, 16)]
            clients = [
                {"round": t, "client": k, "status": "used", "train/accuracy": accuracy[t - 1] - 0.02 * k}
                for t in range(1, 16)
                for k in range(3)
            ]
            settings = config(*overrides, f"seed={seed}", "rounds=15")
            make(
                root / f"{method}-{seed}",
                settings,
                accuracy,
                clients=clients,
                extra=lambda t, figures=figures: {**figures(t), **BYTES},
            )
    return report(find_runs([root])[0])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_in_a_browser(html: str, tmp_path: Path, width: int, dark: bool) -> None:
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    told = PROBE.replace("document.body.dataset.probe", "parent.document.body.dataset.probe")
    probed = framed(bare.replace("</body>", told + "</body>"), width, tmp_path)
    dom = browse(probed, max(width, 600), dark, "--dump-dom", "--allow-file-access-from-files").stdout
    found = re.search(r'data-probe="([^"]*)"', dom)
    assert found, dom[:2000]
    seen: dict[str, Any] = json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&"))
    assert seen["width"] == width
    assert seen["needed"] <= width  # nothing makes the page wider than the screen
    assert len(seen["painted"]) == len(json.loads(re.search(r'id="charts">(.*?)</script>', html)[1]))  # type: ignore[index]
    assert all(seen["painted"])
    assert seen["sharp"]
    assert len(re.findall(r"\d+\.\d\d %", seen["legend"])) >= len(METHODS)  # values under the pointer
    assert seen["reading"] == "round 15, client 0: 0.4"
    assert seen["narrow"] == 0  # charts that were folded

    # The page as it is, with its policy: what a person sees.
    shot = tmp_path / "page.png"
    done = browse(
        framed(html, width, tmp_path), max(width, 600), dark, f"--screenshot={shot}", "--enable-logging=stderr"
    )
    assert "Content Security Policy" not in done.stderr
    pixels = np.asarray(Image.open(shot).convert("L"))[:, :width]
    assert (pixels.mean() < 80) == dark
    assert pixels.std() > 10
    assert (pixels[1200:] != pixels[1200, 0]).any()
