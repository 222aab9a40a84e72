"""RT-03 in miniature: channels become sides, gaps go, the telephone part alone is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees import rt03

from local.cli import RecipeError
from recipes.swbd import evalset
from recipes.swbd.rt03 import prepare


def test_segments_between_the_gaps(tmp_path: Path) -> None:
    data, stm, glm = prepare(rt03(tmp_path))
    assert {key: " ".join(u.words) for key, u in data.utterances.items() if key.startswith("sw")} == {
        "sw_45097-A_000129-000258": "hello uh there",
        "sw_45097-B_000300-000400": "u._s.",
        "sw_45097-B_000500-000600": "",  # not scored, but decoded
    }
    assert len(data.utterances) == 6
    assert "sw_45097 A sw_45097_A 1.29 2.58 <O> HELLO (%HESITATION)  THERE\n" in stm
    assert "inter_segment_gap" not in stm
    assert "news" not in stm
    assert evalset.scored_counts(stm, glm)["all"] == {"segments": 4, "words": 10}


def test_counts_other_than_the_known_are_named() -> None:
    found = {"all": {"segments": 8420, "words": 76_000}}
    assert evalset.compare(found, {"all": (8420, 76_157)}) == ["all: 8420 segments and 76000 words found, 8420 and 76157 known"]
    assert not evalset.compare({"all": {"segments": 8420, "words": 76_157}}, {"all": (8420, 76_157)})
    assert not evalset.compare({"all": {"segments": 100, "words": 1000}}, {"all": (8420, 76_157)})  # plainly not the whole


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    corpus = rt03(tmp_path)
    (corpus / "data" / "audio" / "eval03" / "english" / "cts" / "fsh_60262.sph").unlink()
    with pytest.raises(RecipeError, match="rt03: no audio for the calls fsh_60262"):
        prepare(corpus)
    with pytest.raises(RecipeError, match="no stm in a folder eval03/english/cts"):
        prepare(corpus / "data" / "audio")
