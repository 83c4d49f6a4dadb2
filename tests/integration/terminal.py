"""A program under a terminal of its own: what it writes can be waited for, and answered."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import Any

_CODES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs Python code under a pseudo terminal; as a context, it ends the program that is still running.

    Args:
        arguments: Of the Python interpreter.
        environment: Variables beside those of this process.
        width: Columns.
    """

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None, width: int = 150) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        drop = ("PYTHONBREAKPOINT", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE")
        kept = {name: value for name, value in os.environ.items() if name not in drop}
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**kept, "TERM": "xterm", **(environment or {})},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self.raw = b""
        self.seen = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def expect(self, pattern: str, seconds: float = 60.0) -> str:
        """Wait until `pattern` comes; returns what was written since the last one, as it came, up to its end."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern.encode(), self.raw[self.seen :])
            if found:
                start, self.seen = self.seen, self.seen + found.end()
                return self.raw[start : self.seen].decode(errors="replace")
            if not self._read(end):
                raise AssertionError(f"{pattern!r} did not come; there was:\n{self.raw[self.seen :].decode()!r}")

    def send(self, text: str) -> None:
        """Type."""
        os.write(self.master, text.encode())

    def finish(self, seconds: float = 60.0) -> str:
        """Wait for the end of the program; returns all that came since the last `expect`."""
        end = time.monotonic() + seconds
        while self._read(end):
            pass
        code = self.process.wait(max(1.0, end - time.monotonic()))
        rest = self.raw[self.seen :].decode(errors="replace")
        assert code == 0, f"exit code {code}:\n{self.raw.decode(errors='replace')}"
        return rest

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self.master], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return False
        data = b""
        with contextlib.suppress(OSError):  # Linux says so at the end
            data = os.read(self.master, 65536)
        self.raw += data
        return bool(data)


def plain(text: str) -> str:
    """`text` without cursor movements and colours."""
    return _CODES.sub(b"", text.encode()).decode()


def _take_terminal() -> Any:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
