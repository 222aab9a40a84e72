"""Mapping rules. The golden values were seen by running SCTK's rfilter1 and csrfilt.sh."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from local.score.glm import Glm

ANY_CASE = "* case_sensitive = 'F'\n"


@pytest.mark.parametrize(
    ("rules", "text", "expected"),
    [
        ("AB => 1\nABC => 2\n", "abc ab", "1C 1"),  # the first rule that fits
        ("A => X / [ ] __ [ ]\nB => Y / [A ] __ [ ]\nC => Z / [Y ] __ [ ]\n", "a b c", "X Y C"),  # contexts as they were
        ("A => B\nB => C\n", "a b", "B C"),  # no second pass
        ("A B => X / [ ] __ [ ]\nB C => Y / [ ] __ [ ]\n", "a b c", "X C"),
        ("A => [] / [ ] __ [ ]\n", "a b a", "B"),
        ("abc => Q\n", "abc", "ABC"),
        (ANY_CASE + "abc => q / [k ] __ [ l]\n", "abc k abc l", "ABC K Q L"),
        ("Q => {A / B} / [ ] __ [ ]\n", "x q z", "X {A / B} Z"),
        ("Q => {A / B C}\n", "x q z", "X {A Z"),  # what stands behind the last slash is taken for a context
        ("ABC => Q / x __ y\n".upper(), "abc xabcy", "ABC XQY"),
        ("ABC => Q / [X]__D\n", "abc xabc xabcd", "ABC XQ XQD"),  # what touches the __ does not count
        ('" OK " => " OKAY "\n', "ok x ok xok", "OKAY X OKAY XOK"),
        ("A => B => C\n", "a", "B => C"),
    ],
)
def test_rules_of_a_reference(rules: str, text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "glm").write_text(f";; x\n{rules}")
    assert Glm(tmp_path / "glm").reference(text) == expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("[{A / B C / D}]", ["A", "B C", "D"]),
        ("[{A / B}E]", ["A", "B E"]),
        ("[E {A / B}]", ["E A", "B"]),
        ("[{A / B} {C / D}]", ["A", "B C", "D"]),
        ("[A / B]", ["A", "B"]),
        ("[A/B]", ["A/B"]),
        ("[{A/B}]", ["A", "B"]),
        ("[{A-B / B--C}]", ["A B", "B -C"]),
        ("[{A}]", ["A"]),
        ("[A- B]", ["A- B"]),
        ("A   B", ["A B"]),
        ("[]", [""]),
    ],
)
def test_readings_of_a_hypothesis_word(new: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "glm").write_text(f";; x\n{ANY_CASE}Q => {new} / [ ] __ [ ]\n")
    assert [" ".join(reading) for reading in Glm(tmp_path / "glm").hypothesis("q")] == expected


@pytest.mark.parametrize("name", ["doc/trans_rules/en20030506.glm", "src/hubscr/test1-notag.base/example.glm"])
def test_every_rule_of_nists_files_as_csrfilt_applies_it(name: str, shared_data: Path, sctk: Path) -> None:
    """Each rule's left side, alone and in contexts that fit it or do not, through both."""
    path = shared_data / "sctk" / name
    glm = Glm(path)
    olds = {
        text
        for rules in glm._rules.values()
        for some in rules.values()
        for rule in some
        for text in (rule.old.strip(), (rule.left + rule.old + rule.right).strip())
        if not set(text) & set("/(){}")  # marks of an stm; "/SLASH => SLASH" deletes, as its last slash comes first
    }
    texts = [
        f"{before}{old}{behind}" for old in sorted(olds) for before in ("", "X ", "X") for behind in ("", " Y", "'S", "-Z")
    ]

    def csrfilt(kind: str, purpose: str, lines: list[str]) -> list[str]:
        return subprocess.run(
            [sctk / "csrfilt.sh", "-i", kind, "-t", purpose, "-dh", path],
            input="".join(lines),
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PATH": f"{sctk}:{os.environ['PATH']}"},
        ).stdout.splitlines()

    theirs = [line.split("<O>")[1] for line in csrfilt("stm", "ref", [f"f A s 0 9 <O> {text}\n" for text in texts])]
    assert [" ".join(text.upper().split()) for text in theirs] == [glm.reference(text) for text in texts]

    words = sorted({word for text in texts for word in text.lower().split()})
    readings: dict[int, list[str]] = {}
    for line in csrfilt("ctm", "hyp", [f"f A {number} 1 {word}\n" for number, word in enumerate(words)]):
        start, text = re.split(r"\s+", line, maxsplit=4)[2::2]
        if text == "<ALT_BEGIN>":
            number = -1  # the words that follow say whose
        elif text != "<ALT_END>":
            if start != "*":
                number = int(float(start))
            readings.setdefault(number, []).append("/" if text == "<ALT>" else text.upper())
    expected = [[" ".join(reading) for reading in glm.hypothesis(word)] for word in words]
    found = [[text.strip() for text in " ".join(readings.get(number, [])).split("/")] for number in range(len(words))]
    assert found == expected
