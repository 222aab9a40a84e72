"""sclite's alignment: ties, fragments, alternatives. The golden values are those of sclite 2.10."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.score.align import align, judge, matches, tokens

# Equally cheap alignments have other counts; these are sclite's.
TIES = [
    ("A B C D", "B X Y Z W", "D:A/ C:B/B I:/X I:/Y S:C/Z S:D/W"),
    ("A B C", "B D A", "D:A/ C:B/B I:/D S:C/A"),
    ("{ @ / A B }", "E C D C A", "I:/E I:/C I:/D I:/C C:A/A D:B/"),
    ("{ @ / A B }", "B", "D:A/ C:B/B"),
    ("{ A / B C }", "{ A / B } { A B / A C / D } D B", "C:A/A I:/D I:/D I:/B"),
    ("B { A / @ }", "D D E C", "S:B/D I:/D I:/E I:/C"),
    ("D C D (A) { @ / A B } { (A) / B }", "{ A / B C } A", "S:D/B C:C/C D:D/ C:(A)/A C:(A)/"),
    ("(B) (A) { A (B) / C } { A / @ } D { (A) / B }", "E B E", "C:(B)/ C:(A)/ D:C/ S:D/E C:B/B I:/E"),
]


@pytest.mark.parametrize(("reference", "hypothesis", "expected"), TIES)
def test_ties_are_broken_as_sclite_breaks_them(reference: str, hypothesis: str, expected: str) -> None:
    _, pairs = align(tokens(reference), tokens(hypothesis))
    assert " ".join(f"{judge(word, heard)}:{word}/{heard}" for word, heard, _ in pairs) == expected


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        ("A-", "AB", True),
        ("-A", "BA", True),
        ("A", "A-", True),
        ("AB", "-B", True),
        ("AB-", "ABC-", True),
        ("-A", "-BA", True),
        ("AB-", "A-", False),  # the reference's fragment asks for all of its letters
        ("-BA", "-A", False),
        ("A-", "-A", False),
        ("-A-", "A", False),
        ("-", "A", False),
        ("AB", "-", False),
    ],
)
def test_fragments(reference: str, hypothesis: str, expected: bool) -> None:
    assert matches(reference, hypothesis) is expected


@given(st.lists(st.sampled_from("ABCD"), max_size=8), st.lists(st.sampled_from("ABCD"), max_size=8))
def test_counts_add_up(reference: list[str], hypothesis: list[str]) -> None:
    found, pairs = align(reference, hypothesis)
    assert found.words == len(reference)
    assert found.correct + found.substituted + found.inserted == len(hypothesis)
    assert [pair.word for pair in pairs if pair.word] == reference
    assert [pair.heard for pair in pairs if pair.heard] == hypothesis
    assert align(reference, reference)[0].errors == 0
    swapped, _ = align(hypothesis, reference)
    cost = 4 * found.substituted + 3 * (found.deleted + found.inserted)
    assert cost == 4 * swapped.substituted + 3 * (swapped.deleted + swapped.inserted)


@given(
    st.recursive(st.sampled_from(["A", "B", "(C)", "@"]), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=8)
)
def test_what_the_alternatives_allow_is_no_error(choice: str | list) -> None:
    """Nested alternatives: a reading of them aligns without an error."""

    def text(node: str | list) -> str:
        return node if isinstance(node, str) else "{ " + " / ".join(map(text, node)) + " }"

    def last(node: str | list) -> str:
        return node if isinstance(node, str) else last(node[-1])

    reading = last(choice).strip("()@")
    found, pairs = align(tokens(f"X {text(choice)} Y"), tokens(f"X {reading} Y"))
    assert found.errors == 0
    assert [pair.heard for pair in pairs if pair.heard] == ["X", *reading, "Y"]
