"""Counts that NIST's hubscr.pl (Debian sctk 2.4.10) gives, case by case."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from local.cli import RecipeError
from local.score import __main__ as command
from local.score import sctk as nist
from local.score.nist import Word, read_ctm, read_stm
from local.score.wer import Reference, total

HEAD = ';; CATEGORY "0" "" ""\n;; LABEL "O" "Overall" "Overall"\n'
RULES = """;; rules in NIST's forms, a few of each kind
* name "test"
* desc "test"
* format = 'NIST1'
* max_nrules = '100'
* copy_no_hit = 'T'
* case_sensitive = 'F'
UH => %HESITATION / [ ] __ [ ] ;; hesitation
UM => %HESITATION / [ ] __ [ ]
UH-HUH => %BCACK / [ ] __ [ ]
MHM => %BCACK / [ ] __ [ ]
UH-UH => %BCNACK / [ ] __ [ ]
HUH-UH => %BCNACK / [ ] __ [ ]
GONNA => GOING TO
ALRIGHT => ALL RIGHT
WEBSITE => WEB SITE / [ ] __ [ ]
OKAY => O. K. / [ ] __ [ ]
OK => O. K. / [ ] __ [ ]
;; INPUT_DEPENDENT_APPLICATION = "ctm"
[HE'S] => [{HE'S / HE IS / HE HAS}] / [ ] __ [ ]
[I'M] => [{I'M / I AM}] / [ ] __ [ ]
"""

# reference, hypothesis: N, correct, substituted, deleted, inserted
GOLDEN = [
    ("WELL (%HESITATION) YES", "well yes", (3, 3, 0, 0, 0)),
    ("WELL %HESITATION YES", "well yes", (3, 2, 0, 1, 0)),
    ("UH-HUH", "mhm", (1, 1, 0, 0, 0)),
    ("UH-HUH", "yeah", (1, 0, 1, 0, 0)),
    ("UH-UH", "huh-uh", (1, 1, 0, 0, 0)),
    ("HE IS HERE", "he's here", (3, 3, 0, 0, 0)),
    ("HE HAS GONE", "he's gone", (3, 3, 0, 0, 0)),
    ("HE'S HERE", "he is here", (2, 1, 1, 0, 1)),
    ("I AM GOING TO GO", "i'm gonna go", (5, 5, 0, 0, 0)),
    ("I WE- WENT", "i went", (3, 2, 0, 1, 0)),
    ("I WE- WENT", "i we went", (3, 3, 0, 0, 0)),
    ("(WE-) WENT", "well went", (2, 2, 0, 0, 0)),
    ("OKAY FINE", "ok fine", (3, 3, 0, 0, 0)),
    ("ALL RIGHT THEN", "alright then", (3, 3, 0, 0, 0)),
    ("WEB SITE", "website", (2, 2, 0, 0, 0)),
    ("WELL-KNOWN MAN", "well known man", (3, 3, 0, 0, 0)),
    ("U. S. A. TODAY", "u. s. a. today", (4, 4, 0, 0, 0)),
    ("U S A TODAY", "u. s. a. today", (4, 1, 3, 0, 0)),
    ("I HEARD LAUGHTER", "i heard laughter", (3, 3, 0, 0, 0)),
    ("YEAH", "yea", (1, 0, 1, 0, 0)),
    ("(HELLO THERE) MAN", "man", (3, 3, 0, 0, 0)),
    ("", "hello", (0, 0, 0, 0, 1)),
    ("IGNORE_TIME_SEGMENT_IN_SCORING", "hello there", (0, 0, 0, 0, 0)),
    ("(THE) MAN", "a man", (2, 1, 1, 0, 0)),
    ("{ A / B D } C", "b d c", (3, 3, 0, 0, 0)),
    ("{ A / @ } C", "x c", (1, 1, 0, 0, 1)),
    ("A B C D", "b x y z w", (4, 1, 2, 1, 2)),
    ("A B C", "b d a", (3, 1, 1, 1, 1)),
]

# As they are.
RAW = [
    ("WELL (%HESITATION) YES", "well uh yes", (3, 3, 0, 0, 0)),
    ("WELL (%HESITATION) YES", "well um yes", (3, 3, 0, 0, 0)),
    ("WELL YES", "well uh yes", (2, 2, 0, 0, 1)),
    ("I WENT", "i we- went", (2, 2, 0, 0, 1)),
    ("U. S. TODAY", "u._s. today", (3, 1, 1, 1, 0)),
    ("I HEARD", "i heard [laughter]", (2, 2, 0, 0, 1)),
    ("I HEARD", "i heard [noise]", (2, 2, 0, 0, 1)),
    ("I HEARD", "i heard <unk>", (2, 2, 0, 0, 1)),
    ("X A/B Z", "x a/b z", (3, 3, 0, 0, 0)),
    ("X A/B Z", "x a b z", (3, 2, 1, 0, 1)),
    ("X A / B Z", "x a b z", (5, 4, 0, 1, 0)),
    ("X {A/B} Z", "x b z", (3, 3, 0, 0, 0)),
    ("{ A / { B / C } } D", "c d", (2, 2, 0, 0, 0)),
    ("(A-B) C", "c", (3, 3, 0, 0, 0)),
]

# Cleaned before the glm: fillers, fragments and tags leave the hypothesis, acronyms are split.
CLEANED = [
    ("WELL (%HESITATION) YES", "well uh yes", (3, 3, 0, 0, 0)),
    ("WELL YES", "well uh yes", (2, 2, 0, 0, 0)),
    ("I WENT", "i we- went", (2, 2, 0, 0, 0)),
    ("I HEARD", "i heard [laughter]", (2, 2, 0, 0, 0)),
    ("I HEARD", "i heard <unk> [noise]", (2, 2, 0, 0, 0)),
    ("U. S. TODAY", "u._s. today", (3, 3, 0, 0, 0)),
]


def write(folder: Path, segments: list[tuple[float, float, str]], words: list[tuple[float, float, str]]) -> Reference:
    """A reference of one side, ``f A``, and ``hyp.ctm`` beside it."""
    rows = (f"f A f_A {start} {end} <O> {text}\n" for start, end, text in segments)
    (folder / "ref.stm").write_text(HEAD + "".join(rows))
    (folder / "glm").write_text(RULES)
    (folder / "hyp.ctm").write_text("".join(f"f A {start} {duration} {word}\n" for start, duration, word in words))
    return Reference(folder / "ref.stm", folder / "glm")


def timed(text: str) -> list[tuple[float, float, str]]:
    return [(round(0.1 + 0.3 * place, 2), 0.2, word) for place, word in enumerate(text.split())]


def counts(folder: Path, segments: list[tuple[float, float, str]], words: list[tuple[float, float, str]]) -> tuple[int, ...]:
    total = write(folder, segments, words).score(folder / "hyp.ctm").total()
    return total.words, total.correct, total.substituted, total.deleted, total.inserted


@pytest.mark.parametrize(("reference", "hypothesis", "expected"), GOLDEN + CLEANED)
def test_a_segment(reference: str, hypothesis: str, expected: tuple[int, ...], tmp_path: Path) -> None:
    assert counts(tmp_path, [(0, 9, reference)], timed(hypothesis)) == expected


def test_raw_rows_and_golden_rows_with_nists_rules(shared_data: Path, sctk: Path, tmp_path: Path) -> None:
    """The whole English glm, one side a row: the table's counts from ours, and from hubscr.pl run here."""
    rows = [row for row in GOLDEN + RAW if "IGNORE" not in row[0]]
    stm, words = [HEAD], []
    for number, (reference, hypothesis, _) in enumerate(rows):
        stm.append(f"f{number:03d} A r{number:03d} 0 9 <O> {reference}\n")
        words += [Word(f"f{number:03d}", "A", start, duration, word) for start, duration, word in timed(hypothesis)]
    (tmp_path / "ref.stm").write_text("".join(stm))
    shutil.copyfile(shared_data / "sctk/doc/trans_rules/en20030506.glm", tmp_path / "glm")
    result = Reference(tmp_path / "ref.stm", tmp_path / "glm").score_words(words)
    (tmp_path / "nist").mkdir()
    theirs = nist.hubscr(sctk, tmp_path / "ref.stm", tmp_path / "glm", words, tmp_path / "nist")
    for (reference, hypothesis, expected), line in zip(rows, result.lines, strict=True):
        for counts in (line.counts, theirs[line.segment.speaker]):
            assert (counts.words, counts.correct, counts.substituted, counts.deleted, counts.inserted) == expected, (
                reference,
                hypothesis,
            )


@pytest.mark.parametrize(("reference", "hypothesis", "expected"), RAW)
def test_a_segment_without_cleaning(reference: str, hypothesis: str, expected: tuple[int, ...], tmp_path: Path) -> None:
    scorer = write(tmp_path, [(0, 9, reference)], timed(hypothesis))
    c = scorer.score_words(read_ctm(tmp_path / "hyp.ctm")).total()
    assert (c.words, c.correct, c.substituted, c.deleted, c.inserted) == expected


A, B, X, C, D = (0.1, 0.2, "a"), (0.5, 0.2, "b"), (1.4, 0.2, "x"), (2.1, 0.2, "c"), (2.5, 0.2, "d")


@pytest.mark.parametrize(
    ("segments", "words", "expected"),
    [
        ([(0, 1, "A B"), (2, 3, "C D")], [A, B, X, C, D], (4, 4, 0, 0, 1)),  # a word in a gap is inserted
        ([(0, 1, "A B"), (1, 2, "IGNORE_TIME_SEGMENT_IN_SCORING"), (2, 3, "C D")], [A, B, X, C, D], (4, 4, 0, 0, 0)),
        ([(0, 1, "A B"), (2, 3, "C D")], [A, (1.1, 0.2, "b"), C, D], (4, 3, 0, 1, 1)),
        ([(0, 1, "A B"), (1, 3, "C D")], [A, (0.9, 0.2, "b"), C, D], (4, 3, 0, 1, 1)),  # its middle is the next one's
        ([(0, 1, "A B"), (1, 3, "C D")], [A, (0.9, 0.18, "b"), C, D], (4, 4, 0, 0, 0)),
        ([(1, 2, "A B")], [A, (1.5, 0.2, "b")], (2, 2, 0, 0, 0)),  # before the first segment
        ([(1, 2, "A B")], [(1.1, 0.2, "a"), (2.5, 0.2, "b")], (2, 2, 0, 0, 0)),  # behind the last
        ([(0, 1.5, "A B"), (1, 3, "C D")], [A, (1.2, 0.2, "b"), (1.3, 0.2, "c"), D], (4, 3, 0, 1, 1)),
        ([(0, 1, "A"), (1, 2, "B")], [], (2, 0, 0, 2, 0)),
        # a middle right on the border: sclite holds segments in single precision
        ([(0, 7.9, "A"), (7.9, 9, "B")], [(7.86, 0.08, "x")], (2, 0, 1, 1, 0)),
        ([(4.7, 6.7, "A"), (2.7, 4.7, "")], [(4.6, 0.2, "a")], (1, 1, 0, 0, 0)),
    ],
)
def test_words_go_to_segments_by_their_middle(segments, words, expected, tmp_path: Path) -> None:
    assert counts(tmp_path, segments, words) == expected


@pytest.mark.parametrize("case", ["test1-notag.base", "test1-notag-a.base"])
@pytest.mark.parametrize("hypothesis", ["lvc_hyp", "lvc_hyp2"])
def test_nists_own_cases(case: str, hypothesis: str, shared_data: Path) -> None:
    """SCTK's test1-notag: the counts of its reports, speaker by speaker. The second's are asclite's."""
    folder = shared_data / "sctk/src/hubscr" / case
    expected = nist._read_raw((folder / f"{hypothesis}.notag.ctm.filt.raw").read_text(encoding="latin-1"))
    scorer = Reference(folder / "lvc_refe.notag.noat.stm", folder / "example.glm")
    result = scorer.score_words(read_ctm(folder / f"{hypothesis}.notag.ctm"))
    assert {speaker: total(lines) for speaker, lines in result.speakers().items()} == {
        speaker.lower(): counts for speaker, counts in expected.items()
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("glm", "A B C\n", r"glm:1: expected a rule"),
        ("glm", "A => B / [ ] __ [\n", r"glm:1: expected a context"),
        ("ref.stm", HEAD + "f A f_A 2 1 <O> HELLO\n", r"ref.stm:3: expected 'file side speaker start end"),
        ("ref.stm", "f A f_A 0 1 <X> HELLO\n", r"ref.stm:1: the label 'x' has no header"),
        ("ref.stm", HEAD + "f A f_A 0 1 <O> (HELLO ((THERE)\n", r"ref.stm:3: parentheses that do not match"),
        ("ref.stm", HEAD, "no segments to score against"),
        ("ref.stm", HEAD + "f A f_A 0 1 <O> A { B / C\n", r"ref.stm:3: parentheses that do not match"),
        ("glm", "* copy_no_hit = 'F'\nA => B\n", r"glm: expected \* copy_no_hit = 'T', found 'F'"),
        ("glm", "A =>B\n", r"glm:1: expected a rule"),
        ("hyp.ctm", "f A 0.1 0.2 (hello)\n", r"hyp.ctm:1: a hypothesis word with parentheses"),
        ("hyp.ctm", "f A 0.1 nan hello\n", r"hyp.ctm:1: expected 'file side start duration word"),
        ("hyp.ctm", "f 1 0.1 0.2 hello\n", r"f 1 is not in .*ref.stm.*are channels named 1 and 2"),
    ],
)
def test_bad_input_is_refused_by_line(name: str, content: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, [(0, 9, "HELLO")], [(0.1, 0.2, "hello")])
    (tmp_path / name).write_text(content)
    with pytest.raises(RecipeError, match=message):
        Reference(tmp_path / "ref.stm", tmp_path / "glm").score(tmp_path / "hyp.ctm")


def test_unsorted_input_is_sorted(tmp_path: Path) -> None:
    write(tmp_path, [(2, 3, "C D"), (0, 1, "A B")], [C, D, B, A])
    assert [segment.start for segment in read_stm(tmp_path / "ref.stm")[0]] == [0, 2]
    assert counts(tmp_path, [(2, 3, "C D"), (0, 1, "A B")], [C, D, B, A]) == (4, 4, 0, 0, 0)


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A side that was not decoded is deleted, and named; labels are summed apart."""
    stm = [HEAD, ';; LABEL "sw" "SWB" ""\n;; LABEL "en" "CH" ""\n;; LABEL "none" "nothing" ""\n']
    stm += ["sw1 A s 0 1 <O,sw> A B C\n", "sw1 A s 1 2 <O,sw> D\n", "en1 B e 0 1 <O,en> (UH) A B\n"]
    for name, text in (("stm", "".join(stm)), ("glm", RULES), ("hyp.1_0.ctm", "sw1 A 0.1 0.2 a 1.00\nsw1 A 0.5 0.2 x 0.5\n")):
        (tmp_path / name).write_text(text)
    files = [f"--stm={tmp_path}/stm", f"--glm={tmp_path}/glm"]
    monkeypatch.setattr("sys.argv", ["score", *files, f"--ctm={tmp_path}/hyp.1_0.ctm", f"--out={tmp_path}/out"])
    command.main()
    assert "1 sides of the reference have no hypothesis word, all of theirs count as deleted: en1 b" in capsys.readouterr().err
    scores = json.loads((tmp_path / "out/wer.json").read_text())
    keys = ("N", "corr", "sub", "del", "ins", "sentences")
    assert [scores["all"][key] for key in keys] == [7, 2, 1, 4, 0, 3] == [scores["o"][key] for key in keys]
    assert [scores["sw"][key] for key in keys] == [4, 1, 1, 2, 0, 2]
    assert [scores["en"][key] for key in keys] == [3, 1, 0, 2, 0, 1]
    assert scores["silent"] == {"sides": ["en1 b"], "segments": ["en1 B 0.00 1.00", "sw1 A 1.00 2.00"]}
    assert "none" not in scores
    assert scores["sctk"] is None or [scores["sctk"][key] for key in keys[:5]] == [7, 2, 1, 4, 0]
    block = (tmp_path / "out/report.pra").read_text().split("\n\n")[1].splitlines()
    assert block[:2] == ["sw1 A 0.00 1.00 s <o,sw>", "Scores: (#C #S #D #I) 1 1 1 0"]
    assert block[2:] == ["REF:  a B   C", "HYP:  a *** X", "EVAL:   D   S"]
