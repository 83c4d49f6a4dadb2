"""The checked-in list of what the rules let pass, each entry with a reason."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tools.architecture.source import Finding

RULES = {"private", "strategy", "hook_string", "constructor", "file", "function", "edge"}


@dataclass
class Exceptions:
    """Entries by rule; remembers which were needed."""

    entries: dict[str, list[dict[str, str]]]
    used: set[int] = field(default_factory=set)

    @classmethod
    def parse(cls, text: str) -> Exceptions:
        """Read the TOML text; every entry needs where, subject and a reason in words."""
        data: dict[str, Any] = tomllib.loads(text)
        if unknown := data.keys() - RULES:
            raise ValueError(f"Unknown rules: {sorted(unknown)}; known are {sorted(RULES)}.")
        for rule, entries in data.items():
            for entry in entries:
                if entry.keys() != {"where", "subject", "reason"} or len(entry["reason"].split()) < 3:
                    raise ValueError(f"{rule}: {entry} needs exactly where, subject and a reason in words.")
        return cls(data)

    @classmethod
    def read(cls, path: Path) -> Exceptions:
        """Read the file."""
        return cls.parse(path.read_text("utf-8"))

    def apply(self, rule: str, findings: list[Finding]) -> list[Finding]:
        """Findings that no entry of the rule covers."""
        return [finding for finding in findings if not self._covers(rule, finding)]

    def _covers(self, rule: str, finding: Finding) -> bool:
        covered = False
        for entry in self.entries.get(rule, ()):
            # Square brackets occur in subjects as subscripts, not as character classes.
            where, subject = entry["where"], entry["subject"].replace("[", "[[]")
            if fnmatchcase(finding.where, where) and fnmatchcase(finding.subject, subject):
                self.used.add(id(entry))
                covered = True
        return covered

    def unused(self, rule: str) -> list[dict[str, str]]:
        """Entries of a rule that covered nothing."""
        return [entry for entry in self.entries.get(rule, ()) if id(entry) not in self.used]
