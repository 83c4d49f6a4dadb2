"""Rules about texts: links lead somewhere, and nothing names a machine's own folders or hosts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
# Put together from parts, so that this file does not find itself.
_MACHINE = re.compile(r"(?<![\w.~$}])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "home/[a-z]+", "opt/[a-z]+"]) + r")/")
_HOSTS = re.compile(
    "|".join([r"files\.python" + "hosted", r"pypi\." + "org", r"registry\.npm" + "js", r"deb\." + "debian"])
)


def broken_links(page: Path) -> list[str]:
    """Relative links of a Markdown page that lead to no file."""
    text = _FENCED.sub("", page.read_text("utf-8"))
    targets = [link.split("#")[0] for link in _LINK.findall(text)]
    return [
        t for t in targets if t and "://" not in t and not t.startswith("mailto:") and not (page.parent / t).exists()
    ]


def machine_names(text: str) -> list[str]:
    """Lines that name a folder of one machine or the host of a package index."""
    return [line.strip() for line in text.splitlines() if _MACHINE.search(line) or _HOSTS.search(line)]


def tracked_texts(root: Path) -> list[Path]:
    """Text files under version control."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    paths = [root / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:8000]]
