"""NIST's global mapping file (glm), as ``csrfilt.sh`` and ``rfilter1`` of SCTK apply it.

A rule ``A => B / [left] __ [right]`` replaces the string A by B between the strings left and right. At each place of a line
the first rule of the file that fits is used, on the text as it was before any rule. Rules behind
``;; INPUT_DEPENDENT_APPLICATION = "ctm"`` are for such input alone: contractions are expanded in hypotheses only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from local.cli import RecipeError

_CONTEXT = re.compile(r"/\s*(?:\[([^\]]*)\])?\s*__[^\[]*(?:\[([^\]]*)\])?\s*$")
_SECTION = re.compile(r'^;;\s+INPUT_DEPENDENT_APPLICATION\s*=\s*"([^"]*)"')
_BRACKETED = re.compile(r"^\[(.*)\]$")


@dataclass(frozen=True)
class Rule:
    """Replace ``old`` by ``new`` where ``left`` stands before and ``right`` behind it."""

    old: str
    new: str
    left: str
    right: str


class Glm:
    """The rules of a file, for references (stm) and for hypotheses (ctm)."""

    def __init__(self, path: Path) -> None:
        """:raises RecipeError: for a missing file, or a line that is no rule, with its number."""
        if not path.exists():
            raise RecipeError(f"{path}: no such glm")
        self._rules: dict[str, dict[str, list[Rule]]] = {kind: {} for kind in ("stm", "ctm")}
        section = ""
        for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), 1):
            if match := _SECTION.match(line):
                section = match[1].lower()
            line = line.split(";;")[0].strip()
            if not line or line.startswith("*"):
                continue
            rule = _parse(line, f"{path}:{number}")
            for kind, purpose in (("stm", "ref"), ("ctm", "hyp")):
                if not section or re.search(section, kind) or re.search(section, purpose):
                    self._rules[kind].setdefault(rule.old[0], []).append(rule)
        self.reference = lru_cache(maxsize=None)(lambda text: self._filter(text, "stm"))
        self.hypothesis = lru_cache(maxsize=None)(lambda text: self._filter(text, "ctm"))

    def _filter(self, text: str, kind: str) -> str:
        """Map a text: upper case, rules, hyphens between letters to spaces, parentheses around single words."""
        spaced = f" {' '.join(text.upper().split())} "
        spaced = " " + spaced.replace("(", "( ").replace(")", " )") + " "
        spaced = re.sub(r"[ \t]+", " ", spaced)
        mapped = self._apply(spaced, self._rules[kind])
        mapped = re.sub(r"([^( ])-(?=[^) ])", r"\1 ", mapped)
        while (split := re.sub(r"(\(\s+[^()\s]+\s+)([^()\s]+)", r"\1) ( \2", mapped, count=1)) != mapped:
            mapped = split
        return " ".join(re.sub(r"\(\s+", "(", re.sub(r"\s+\)", ")", mapped)).split())

    @staticmethod
    def _apply(text: str, rules: dict[str, list[Rule]]) -> str:
        out = []
        place = 0
        while place < len(text):
            for rule in rules.get(text[place], ()):
                end = place + len(rule.old)
                if text.startswith(rule.old, place) and text.endswith(rule.left, 0, place) and text.startswith(rule.right, end):
                    out.append(rule.new)
                    place = end
                    break
            else:
                out.append(text[place])
                place += 1
        return "".join(out)


def _parse(line: str, where: str) -> Rule:
    old, arrow, rest = line.partition("=>")
    if not arrow:
        raise RecipeError(f"{where}: expected a rule 'A => B / [left] __ [right]', found {line[:60]!r}")
    context = _CONTEXT.search(rest)
    left = right = ""
    if context:
        left, right = context[1] or "", context[2] or ""
        rest = rest[: context.start()]
    elif "__" in rest:
        raise RecipeError(f"{where}: expected a context '/ [left] __ [right]', found {line[:60]!r}")
    old, new = (match[1] if (match := _BRACKETED.match(part.strip())) else part.strip() for part in (old, rest))
    if not old:
        raise RecipeError(f"{where}: a rule that replaces nothing: {line[:60]!r}")
    return Rule(old, new, left, right)
