"""The files and the command of docs/own-data.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[1] / "docs/own-data.md").read_text()
BLOOD, TABLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(COMMAND,) = re.findall(r"^fedstride (run .*?\\\n.*?)$", PAGE, re.MULTILINE)
(DATA_FILE,) = re.findall(r"```toml\npath = [^\n]*\n(.*?)```", PAGE, re.DOTALL)
"""What a hospital says of its table, without the path."""
OVERRIDES = shlex.split(COMMAND.replace("\\\n", ""))[1:]
