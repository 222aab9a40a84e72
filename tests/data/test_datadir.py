"""A data directory: Kaldi's rules for what is written, and nothing lost between Kaldi's form, lhotse's and ours."""

from __future__ import annotations

import re
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lhotse import RecordingSet, SupervisionSet

from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance

WORDS = st.lists(st.text(string.ascii_lowercase + "'-._[]éß", min_size=1, max_size=6), max_size=5).map(tuple)


@st.composite
def sets(draw: st.DrawFn) -> DataDir:
    """Calls with one or both sides, utterances on the 10 ms grid, some of them between persons, genders or none."""
    recordings, utterances = {}, {}
    for number in range(draw(st.integers(1, 4))):
        file = f"sw{draw(st.integers(1, 9))}{number:04d}"
        samples = draw(st.integers(8000, 80_000))
        for side in draw(st.sampled_from(["A", "B", "AB"])):
            key = f"{file}-{side}"
            person = draw(st.sampled_from(["", "sw1020", "sw1044"]))
            recordings[key] = Recording(key, Path("/discs of 1997/it's") / f"{file}.sph", "AB".index(side), file, side, samples)
            for start, length in draw(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 10)), min_size=1, max_size=4)):
                utterance = (
                    f"{person}-{key}_{start:06d}-{start + length:06d}" if person else f"{key}_{start:06d}-{start + length:06d}"
                )
                utterances[utterance] = Utterance(
                    utterance, person or key, key, start / 100, (start + length) / 100, draw(WORDS)
                )
    data = DataDir(recordings, utterances)
    if draw(st.booleans()):
        data.genders = {speaker: draw(st.sampled_from("mf")) for speaker in data.speakers}
    return data


@settings(deadline=None, max_examples=60)
@given(sets())
def test_nothing_is_lost_between_the_forms(data: DataDir) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data.write(Path(folder) / "d")
        again = DataDir.read(Path(folder) / "d")
        assert again == data
        recordings = RecordingSet.from_file(Path(folder) / "d" / "recordings.jsonl.gz")
        supervisions = SupervisionSet.from_file(Path(folder) / "d" / "supervisions.jsonl.gz")
        assert DataDir.from_manifests(recordings, supervisions) == data
        _follow_kaldis_rules(Path(folder) / "d")


def _follow_kaldis_rules(folder: Path) -> None:
    """What Kaldi's validate_data_dir.sh asks for, said anew: order, uniqueness, agreement between the files."""

    def table(name: str) -> dict[str, list[str]]:
        lines = (folder / name).read_bytes().decode().splitlines()
        keys = [line.split(" ")[0].encode() for line in lines]
        assert keys == sorted(set(keys)), name  # C order, each once
        return {line.split(" ")[0]: line.split(" ")[1:] for line in lines}

    wav, segments, text, utt2spk, spk2utt = map(table, ("wav.scp", "segments", "text", "utt2spk", "spk2utt"))
    assert list(utt2spk) == list(segments) == list(text)
    assert {speaker for [speaker] in utt2spk.values()} == set(spk2utt)
    assert [utterance for utterances in spk2utt.values() for utterance in utterances] == list(utt2spk)  # in the same order
    assert all(key.startswith(speaker) for key, [speaker] in utt2spk.items())
    assert all(rest[-1] == "|" for rest in wav.values())
    for recording, start, end in segments.values():
        assert recording in wav
        assert 0 <= float(start) < float(end)
    sides = table("reco2file_and_channel")
    assert list(sides) == list(wav)
    assert all(re.fullmatch(r"\S+ [AB]", " ".join(rest)) for rest in sides.values())
    if (folder / "spk2gender").exists():
        genders = table("spk2gender")
        assert list(genders) == list(spk2utt)
        assert all(gender in ("m", "f") for [gender] in genders.values())


def test_manifests_that_are_no_telephone_calls_are_refused() -> None:
    recording = Recording("sw0-A", Path("x.sph"), 0, "sw0", "A", 8000)
    data = DataDir({"sw0-A": recording}, {"sw0-A_1": Utterance("sw0-A_1", "sw0-A", "sw0-A", 0.0, 0.5, ())})
    recordings, supervisions = data.manifests()
    with pytest.raises(RecipeError, match="supervision sw0-A_1: no recording sw0"):
        DataDir.from_manifests(RecordingSet.from_recordings([]), supervisions)
    fast = RecordingSet.from_recordings(r.resample(16_000) for r in recordings)
    with pytest.raises(RecipeError, match=r"expected channel 0 or 1 of a call of 8000 Hz, found .* at 16000 Hz"):
        DataDir.from_manifests(fast, supervisions)


def test_genders_of_some_speakers_are_refused() -> None:
    recording = Recording("sw0-A", Path("x.sph"), 0, "sw0", "A", 8000)
    data = DataDir({"sw0-A": recording}, {"sw0-A_1": Utterance("sw0-A_1", "sw0-A", "sw0-A", 0.0, 0.5, ())}, {"sw1-A": "m"})
    with pytest.raises(RecipeError, match="genders must be given of all speakers"):
        data.validate()
    data.genders = {"sw0-A": "x"}
    with pytest.raises(RecipeError, match="speaker sw0-A: expected gender m or f, found 'x'"):
        data.validate()


def test_a_side_on_which_two_persons_speak_is_one_job_s_where_sides_are_split() -> None:
    sides = {f"en_{n}-A": Recording(f"en_{n}-A", Path("x.sph"), 0, f"en_{n}", "A", 80_000) for n in (1, 2)}
    speakers = ["en_1-A", "en_1-A1", "en_2-A", "en_2-A1"]
    utterances = {f"{s}_0": Utterance(f"{s}_0", s, s[:6], 0.0, 1.0 + n, ()) for n, s in enumerate(speakers)}
    data = DataDir(sides, utterances)
    by_side = data.split_sides(2)
    assert sorted(key for part in by_side for key in part.sides) == ["en_1-A", "en_2-A"]
    assert sum(len(part.sides) for part in data.split(2)) > 2  # where speakers are, it may lie in both
    with pytest.raises(RecipeError, match="3 jobs for 2 sides: a side is never split"):
        data.split_sides(3)
