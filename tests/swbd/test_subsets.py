"""train, train_dev and heldout share no call and no person, and nothing is lost unseen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance
from recipes.swbd.subsets import SubsetConf, merge, split, stm_of


def corpus(name: str, calls: list[tuple[str, str]], lines: int = 4) -> DataDir:
    """Calls between persons (a side's own id where it is empty), with a few utterances of 36 s a side."""
    recordings, utterances = {}, {}
    for number, pair in enumerate(calls):
        file = f"{name}{number:03d}"
        for channel, person in enumerate(pair):
            side = f"{file}-{'AB'[channel]}"
            recordings[side] = Recording(side, Path("x.sph"), channel, file, "AB"[channel], 8000 * 36 * lines)
            for line in range(lines):
                key = f"{person}-{side}_{line}" if person else f"{side}_{line}"
                utterances[key] = Utterance(key, person or side, side, 36.0 * line, 36.0 * (line + 1), (f"w{line}",))
    return DataDir(recordings, utterances)


PEOPLE = st.lists(
    st.tuples(st.sampled_from(["", "p1", "p2", "p3", "p4", "p5"]), st.sampled_from(["", "q1", "q2", "q3"])), min_size=8
)


@given(PEOPLE, st.integers(0, 5))
def test_no_call_and_no_person_is_shared(calls: list[tuple[str, str]], others: int) -> None:
    corpora = [corpus("sw", calls)] + ([corpus("fe", [("", "")] * others)] if others else [])
    try:
        train, dev, heldout, left_out = split(corpora, SubsetConf(5, 0.1, 10**6))
    except RecipeError:
        return  # nothing left to train on: few calls between the same persons
    sets = (train, dev, heldout)
    for one in sets:
        for two in sets:
            if one is not two:
                assert not {r.file for r in one.recordings.values()} & {r.file for r in two.recordings.values()}
                assert not set(one.speakers) & set(two.speakers)
    total = sum(len(data.utterances) for data in corpora)
    assert sum(len(data.utterances) for data in sets) + sum(left_out.values()) == total
    assert len(dev.utterances) >= 5
    assert all(r.file.startswith("sw") for r in dev.recordings.values())


def test_without_persons_train_dev_is_the_front_and_repeats_are_limited() -> None:
    data = corpus("sw", [("", "")] * 6)
    train, dev, heldout, left_out = split([data], SubsetConf(dev_utterances=9, heldout_hours=0.08, max_repeats=3))
    assert {r.file for r in dev.recordings.values()} == {"sw000", "sw001"}
    assert len(heldout.speakers) == 2
    assert all(sum(u.words == words for u in train.utterances.values()) == 3 for words in (("w0",), ("w3",)))
    assert left_out == {"other side of a call held out": 0, "text repeated too often": 12}


def test_heldout_is_spread_over_the_corpora() -> None:
    corpora = [corpus("sw", [("", "")] * 30), corpus("fe", [("", "")] * 30)]
    heldout = split(corpora, SubsetConf(1, 0.32, 10**6)).heldout
    assert {r.file[:2] for r in heldout.recordings.values()} == {"fe", "sw"}
    with pytest.raises(RecipeError, match="two corpora have a recording"):
        merge([corpora[0], corpora[0]])
    with pytest.raises(RecipeError, match="leaves nothing"):
        split(corpora, SubsetConf(1000, 0.1, 300))


def test_the_reference_of_a_set() -> None:
    data = corpus("sw", [("", "")], 1)
    assert stm_of(data).splitlines()[2:] == ["sw000 A sw000-A 0.00 36.00 <O> W0", "sw000 B sw000-B 0.00 36.00 <O> W0"]
