"""Opens pages in Debian's chromium, at any width."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium")
WIDTHS = (390, 1280)  # of a telephone and of a screen, in pixels


def browse(page: Path, width: int, dark: bool, *options: str) -> subprocess.CompletedProcess[str]:
    """Open the page in a window of this width; without a network."""
    assert CHROMIUM is not None
    return subprocess.run(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"),
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={page.parent / 'profile'}",
            f"--window-size={width},1600",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--virtual-time-budget=4000",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def framed(html: str, width: int, folder: Path) -> Path:
    """A page that shows the report in a frame of this width; a window cannot be that narrow in every version."""
    (folder / "inner.html").write_text(html)
    outer = folder / "outer.html"
    outer.write_text(
        f'<body style="margin:0"><iframe src="inner.html" style="width:{width}px;height:1600px;border:0"></iframe>'
    )
    return outer
