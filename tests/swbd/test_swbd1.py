"""Switchboard-1 in miniature: ids, times, sides and texts as the rules say, and what damaged input gets."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import RATE, TONES, persons, sphere, switchboard

from local.audio import read_side
from local.cli import RecipeError
from local.datadir import DataDir
from recipes.swbd.corpus import centiseconds, utterance_id
from recipes.swbd.swbd1 import KNOWN, prepare


def _read(root: Path) -> DataDir:
    audio, transcripts = switchboard(root)
    return prepare([audio], transcripts).finish(KNOWN)[0]


def test_ids_times_and_texts(tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path)
    data, about = prepare([audio], transcripts).finish(KNOWN)
    found = {key: (u.recording, u.start, u.end, " ".join(u.words)) for key, u in data.utterances.items()}
    assert {key: value for key, value in found.items() if "yeah" not in value[3]} == {
        "sw02001-A_000098-000256": ("sw02001-A", 0.98, 2.56, "hi there um"),
        "sw02001-A_000301-000400": ("sw02001-A", 3.01, 4.0, "no"),  # half up: 3.005 s
        "sw02001-B_000100-000200": ("sw02001-B", 1.0, 2.0, "uh-huh"),
        "sw02001-B_000920-001000": ("sw02001-B", 9.2, 10.0, "it's the u._s. [noise]"),  # cut to the audio
        "sw02005-B_000235-000300": ("sw02005-B", 2.35, 3.0, "ammu-it- it'n"),
    }
    assert about["dropped"] == {"ends more than 0.5 s past the audio": 1}
    assert about["mended"] == {"cut to the audio's end": 1}
    assert sorted(data.recordings) == ["sw02001-A", "sw02001-B", "sw02005-B"]  # a side of silence is no recording
    assert [r.channel for r in data.recordings.values()] == [0, 1, 1]


def test_each_side_is_its_own_channel(tmp_path: Path) -> None:
    data = _read(tmp_path)
    for recording in data.recordings.values():
        samples = read_side(recording.path, recording.channel)
        peak = np.abs(np.fft.rfft(samples)).argmax() * RATE / len(samples)
        assert peak == pytest.approx(TONES["AB".index(recording.side)], abs=1)


def test_the_data_directory_survives_writing_and_reading(tmp_path: Path) -> None:
    data = _read(tmp_path)
    data.write(tmp_path / "out")
    again = DataDir.read(tmp_path / "out")
    assert again == data
    assert (tmp_path / "out" / "segments").read_text().splitlines()[0] == "sw02001-A_000098-000256 sw02001-A 0.98 2.56"
    lines = (tmp_path / "out" / "utt2spk").read_text().splitlines()
    assert lines == sorted(lines)


@given(st.integers(0, 600_000), st.integers(1, 30_000))
def test_an_id_gives_its_times_back(start: int, length: int) -> None:
    key = utterance_id("sw02001-A", start, start + length)
    first, last = (int(part) for part in key.split("_")[1].split("-"))
    assert (first, last) == (start, start + length)
    assert centiseconds(Decimal(first) / 100) == start


def _transcript(root: Path, name: str) -> Path:
    return root / "swb_ms98_transcriptions" / name[2:4] / name[2:6] / f"{name}-ms98-a-trans.text"


@pytest.mark.parametrize(("keep", "message"), [(0.4, "promises 80000 .* the data hold 32000"), (0.5, "hold half of what")])
def test_audio_cut_in_the_middle_is_named(keep: float, message: str, tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path)
    sphere(audio / "swb1_d1" / "data" / "sw02001.sph", 10, keep=keep)
    with pytest.raises(RecipeError, match=rf"sw02001\.sph: cut short: .*{message}"):
        prepare([audio], transcripts)


def test_release_one_counts_both_channels(tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path)
    for path in (p for p in audio.rglob("*") if p.suffix.lower() == ".sph"):
        sphere(path, 10, count_both=True)
    assert prepare([audio], transcripts).recordings["sw02001-A"].duration == 10


def test_a_transcript_without_audio_is_named(tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path)
    (audio / "swb1_d1" / "data" / "sw02001.sph").unlink()
    with pytest.raises(RecipeError, match="1 calls have a transcript but no audio: 2001"):
        prepare([audio], transcripts)


def test_a_missing_side_is_named(tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path)
    sphere(audio / "swb1_d1" / "data" / "sw02001.sph", 10, channels=1)
    with pytest.raises(RecipeError, match=r"sw02001\.sph: side B is missing: the file has 1 channel"):
        prepare([audio], transcripts)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sw2001A-ms98-a-0001 zero 1.0 hello", r"trans\.text:1: expected 'id start end words'"),
        ("sw2001A-ms98-a-0001 0.0 nan hello", r"trans\.text:1: expected 'id start end words'"),
        ("sw2001A-ms98-a-0001", r"trans\.text:1: expected 'id start end words'"),
    ],
)
def test_a_damaged_transcript_is_named_by_line(line: str, message: str, tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path)
    _transcript(tmp_path, "sw2001A").write_text(line + "\n")
    with pytest.raises(RecipeError, match=message):
        prepare([audio], transcripts)


def test_too_many_lost_utterances_are_an_error(tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path)
    _transcript(tmp_path, "sw2001B").write_text("".join(f"sw2001B-ms98 {20 + i} {21 + i} past\n" for i in range(9)))
    with pytest.raises(RecipeError, match=r"9 of \d+ utterances dropped .* more than 5 %"):
        prepare([audio], transcripts).finish(KNOWN)


def test_an_empty_corpus_is_an_error(tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path / "full")
    empty = tmp_path / "empty"
    empty.mkdir()
    for folders in ((empty, transcripts), (audio, empty)):
        with pytest.raises(RecipeError, match="nothing there like"):
            prepare([folders[0]], folders[1])
    for path in transcripts.rglob("*-trans.text"):
        path.write_text(f"{path.name[:7]}-ms98-a-0001 0 1 [silence]\n")
    with pytest.raises(RecipeError, match="the corpus is empty"):
        prepare([audio], transcripts).finish(KNOWN)


def test_persons_are_speakers_where_the_tables_know_them(tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path)
    data, _ = prepare([audio], transcripts, persons(tmp_path)).finish(KNOWN)
    assert "sw1020-02001-A_000098-000256" in data.utterances
    assert set(data.speakers) == {"sw1020", "sw1044", "sw02005-B"}  # call 2005 is not in the tables
    assert sorted(data.recordings) == ["sw02001-A", "sw02001-B", "sw02005-B"]
    assert data.genders == {}  # not known of all
    data.write(tmp_path / "out")
    assert DataDir.read(tmp_path / "out") == data


def test_a_side_that_is_all_but_empty_is_left_out_with_its_reason(tmp_path: Path) -> None:
    audio, transcripts = switchboard(tmp_path)
    sphere(audio / "sw02167.sph", 10)
    for side in "AB":
        path = _transcript(tmp_path, f"sw2167{side}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"sw2167{side}-ms98-a-0001 1.0 2.0 yes\n")
    data, about = prepare([audio], transcripts).finish(KNOWN)
    assert "sw02167-A" in data.recordings
    assert "sw02167-B" not in data.recordings
    assert about["left_out"] == {"a side that is all but empty: GMM training fails on it": 1}
