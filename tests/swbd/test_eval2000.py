"""Hub5'00 in miniature."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees import hub5

from local.cli import RecipeError
from local.datadir import DataDir
from recipes.swbd.eval2000 import prepare


def test_segments_of_the_pem_with_the_words_of_the_stm(tmp_path: Path) -> None:
    data, stm, glm = prepare(*hub5(tmp_path))
    assert {key: u.words for key, u in data.utterances.items()} == {
        "en_4156-A_000129-000258": ("he", "is", "uh", "here"),  # 1.29 s and 2.58 s: rounded, not cut
        "en_4156-B_000129-000258": ("u._s.", "we-", "went"),
        "sw_4390-A_000129-000258": ("yes",),
        "sw_4390-A_000300-000400": (),  # not scored, but decoded
        "sw_4390-B_000129-000258": ("no",),
    }
    assert [r.channel for r in data.recordings.values()] == [0, 1, 0, 1]
    assert "HE IS (%HESITATION) HERE" in stm  # NIST's filter cannot read the doubled bracket
    assert glm.startswith(";; rules")
    data.write(tmp_path / "out", extra={"stm": stm, "glm": glm})
    assert DataDir.read(tmp_path / "out") == data
    assert (tmp_path / "out" / "stm").read_text() == stm


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    audio, text = hub5(tmp_path)
    (audio / "english" / "sw_4390.sph").unlink()
    with pytest.raises(RecipeError, match="no audio for the calls sw_4390"):
        prepare(audio, text)
    (audio / "english" / "hub5e_00.pem").write_text("en_4156 A unknown_speaker 1.29 2.58\n")
    with pytest.raises(RecipeError, match="3 scored segments of the stm are not in the pem, the first is en_4156 B"):
        prepare(audio, text)
    (audio / "english" / "hub5e_00.pem").write_text("en_4156 A unknown_speaker 2.58 1.29\n")
    with pytest.raises(RecipeError, match=r"hub5e_00\.pem:1: expected"):
        prepare(audio, text)
    (audio / "english" / "hub5e_00.pem").unlink()
    with pytest.raises(RecipeError, match="expected one pem"):
        prepare(audio, text)


def test_the_recorded_sets_have_their_counts(shared_data: Path) -> None:
    for name, utterances in (("digits_ldc", 167), ("read_ldc", 480)):
        data, _, _ = prepare(shared_data / name / "LDC2002S09", shared_data / name / "LDC2002T43")
        assert len(data.utterances) == utterances
