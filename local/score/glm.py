"""NIST's global mapping file (glm), as ``csrfilt.sh`` and ``rfilter1`` of SCTK apply it.

A rule ``A => B / [left] __ [right]`` replaces the string A by B between the strings left and right. At each place of a line
the first rule of the file that fits is used, on the text as it was before any rule. Rules behind
``;; INPUT_DEPENDENT_APPLICATION = "ctm"`` are for such input alone: contractions are expanded in hypotheses only.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from local.cli import RecipeError

_CONTEXT = re.compile(r"(.*?)__\S*(.*)")
_SECTION = re.compile(r'^;;\s+INPUT_DEPENDENT_APPLICATION\s*=\s*"([^"]*)"')
_HEADER = re.compile(r"\*\s*(\w+)\s*=?\s*['\"](.*?)['\"]")
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)


def upper(text: str) -> str:
    """Upper case as SCTK has it: of ASCII letters."""
    return text.translate(_UPPER)


@dataclass(frozen=True)
class Rule:
    """Replace ``old`` by ``new`` where ``left`` stands before and ``right`` behind it."""

    old: str
    new: str
    left: str
    right: str

    def upper(self) -> Rule:
        """The rule for a text in upper case, whatever its own."""
        return Rule(upper(self.old), self.new, upper(self.left), upper(self.right))


class Glm:
    """The rules of a file, for references (stm) and for hypotheses (ctm)."""

    def __init__(self, path: Path) -> None:
        """:raises RecipeError: for a missing file, or a line that is no rule, with its number."""
        if not path.exists():
            raise RecipeError(f"{path}: no such glm")
        rules: dict[str, list[Rule]] = {"stm": [], "ctm": []}
        section, headers = "", {"format": "NIST1", "copy_no_hit": "T", "case_sensitive": "T"}
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="surrogateescape").split("\n"), 1):
            if match := _SECTION.match(line):
                section = match[1].lower()
            line = line.split(";;")[0].strip()
            if match := _HEADER.match(line):
                headers[match[1]] = match[2]
            if not line or line.startswith("*"):
                continue
            rule = _parse(line, f"{path}:{number}")
            for kind, purpose in (("stm", "ref"), ("ctm", "hyp")):
                if not section or re.search(section, kind) or re.search(section, purpose):
                    rules[kind].append(rule)
        for key, value in (("format", "NIST1"), ("copy_no_hit", "T")):
            if headers[key] != value:
                raise RecipeError(f"{path}: expected * {key} = '{value}', found {headers[key]!r}")
        fold = headers["case_sensitive"] != "T"
        self._rules: dict[str, dict[str, list[Rule]]] = {"stm": {}, "ctm": {}}
        for kind, some in rules.items():
            for rule in (rule.upper() if fold else rule for rule in some):
                self._rules[kind].setdefault(rule.old[0], []).append(rule)
        self.reference = lru_cache(maxsize=None)(lambda text: self._filter(text, "stm"))
        self.hypothesis = lru_cache(maxsize=None)(self._readings)

    def _readings(self, word: str) -> tuple[tuple[str, ...], ...]:
        """Map a word; return its readings, each its words: all but contractions have one."""
        text = self._filter(word, "ctm")
        plain = text.replace("{", " ").replace("}", " ").split()
        if "{" not in text and len(plain) == 1:  # a slash is part of a word then
            return (tuple(plain),)
        readings = [tuple(reading.split()) for reading in " ".join(plain).split("/")]
        return tuple(readings) if len(readings) == 1 else tuple(reading or ("@",) for reading in readings)

    def _filter(self, text: str, kind: str) -> str:
        """Map a text: upper case, rules, hyphens between letters to spaces, parentheses around single words."""
        spaced = f" {' '.join(upper(text).split())} "
        spaced = " " + spaced.replace("(", "( ").replace(")", " )") + " "
        spaced = re.sub(r"[ \t]+", " ", spaced)
        mapped = self._apply(spaced, self._rules[kind])
        mapped = re.sub(r"([^( ])-(?=[^) ])", r"\1 ", mapped)
        while (split := re.sub(r"(\(\s+[^()\s]+\s+)([^()\s]+)", r"\1) ( \2", mapped, count=1)) != mapped:
            mapped = split
        return upper(" ".join(re.sub(r"\(\s+", "(", re.sub(r"\s+\)", ")", mapped)).split()))

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


def _bare(text: str) -> str:
    """A text without the brackets or quotes around it; spaces within them count."""
    return text[1:-1] if len(text) > 1 and text[0] + text[-1] in ("[]", '""') else text


def _parse(line: str, where: str) -> Rule:
    """What stands behind the last slash is the context, and none where it has no ``__`` (NIST's glm has such a line)."""
    if not (sides := re.fullmatch(r"(.*?)\s=>(?:\s(.*))?", line)):
        raise RecipeError(f"{where}: expected a rule 'A => B / [left] __ [right]', found {line[:60]!r}")
    old, new, left, right = sides[1], sides[2] or "", "", ""
    if "/" in new:
        new, _, behind = new.rpartition("/")
        if context := _CONTEXT.fullmatch(behind):
            left, right = (part.strip() for part in context.groups())
            if any(part.startswith("[") != part.endswith("]") for part in (left, right)):
                raise RecipeError(f"{where}: expected a context '/ [left] __ [right]', found {line[:60]!r}")
    old, new, left, right = (_bare(part.strip()) for part in (old, new, left, right))
    if not old:
        raise RecipeError(f"{where}: a rule that replaces nothing: {line[:60]!r}")
    return Rule(old, new, left, right)
