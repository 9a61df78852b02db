"""The page of `fedstride check` in Debian's chromium: at two widths it fits, and says first what differs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from browsing import CHROMIUM, browse, framed
from PIL import Image

from fedstride.tasks.statistics.description import (
    LACKS,
    DescribedColumn,
    Description,
    Told,
    of_categories,
    of_numbers,
)
from lab.sites.differing_sites import outliers
from lab.sites.page import html
from lab.sites.words import differences

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium (apt install chromium)"),
]

ASKED = [
    *(DescribedColumn(f"a column with a long name {at}") for at in range(6)),
    DescribedColumn("kind", tuple("abcdefgh"), True),
]
PROBE = """<script>
setTimeout(() => {
  parent.document.body.dataset.probe = JSON.stringify({
    width: innerWidth, needed: document.documentElement.scrollWidth,
    first: document.querySelector(".verdict").innerText, tables: document.querySelectorAll("table").length,
    scrolls: [...document.querySelectorAll(".box")].every((box) =>
      box.getBoundingClientRect().right <= innerWidth)});
}, 300);
</script>"""


def site(seed: int, n: int = 200) -> Description:
    rng = np.random.default_rng(seed)
    told = [of_numbers(rng.normal(5 if seed else 9, 1, n), 20) for _ in range(5)]
    kinds = of_categories(rng.integers(0, 8, n), 8, 20)
    return Description(20, False, n, bool(seed), seed, (*told, Told(LACKS if seed == 2 else 0), kinds))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_in_a_browser(tmp_path: Path, width: int, dark: bool) -> None:
    said = {f"hospital-{at}.example.org": site(at) for at in range(4)} | {"small": Description(20, few=True)}
    found = outliers(said, ASKED)
    lines = differences(said, ASKED, found)
    page = html(said, ASKED, found, lines, ["node 7 cannot take part: <b>no</b>"])
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    probed = framed(bare.replace("</body>", PROBE + "</body>"), width, tmp_path)
    dom = browse(probed, max(width, 600), dark, "--dump-dom", "--allow-file-access-from-files").stdout
    told = re.search(r'data-probe="([^"]*)"', dom)
    assert told, dom[:2000]
    seen = json.loads(told[1].replace("&quot;", '"').replace("&amp;", "&"))
    assert seen["width"] == width and seen["needed"] <= width and seen["scrolls"]
    assert seen["first"] == f"{len(lines)} things differ" and seen["tables"] == 1 + len(ASKED)
    assert "<b>no</b>" not in page

    shot = tmp_path / "page.png"
    options = (f"--screenshot={shot}", "--enable-logging=stderr")
    done = browse(framed(page, width, tmp_path), max(width, 600), dark, *options)
    assert "Content Security Policy" not in done.stderr
    pixels = np.asarray(Image.open(shot).convert("L"))[:, :width]
    assert (pixels.mean() < 80) == dark and pixels.std() > 10
