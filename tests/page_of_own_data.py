"""The files and the command of docs/own-data.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[1] / "docs/own-data.md").read_text()
BLOOD, TABLES, BEATS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMAND, OF_BEATS = re.findall(r"^fedstride (run .*?\\\n.*?)$", PAGE, re.MULTILINE)
OF_ANOTHER_FORM, DATA_FILE, BEATS_FILE = re.findall(
    r"```toml\npath = [^\n]*\n(?:secret = [^\n]*\n)?(.*?)```", PAGE, re.DOTALL
)
"""What a site says of a table of another form, a hospital of its table, one of its signals: without the paths."""
(POLICY,) = re.findall(r"```toml\n(min_rows = .*?)```", PAGE, re.DOTALL)
OVERRIDES, OVERRIDES_OF_BEATS = (shlex.split(each.replace("\\\n", ""))[1:] for each in (COMMAND, OF_BEATS))
