"""Fisher in miniature: both parts, both forms of its trees, the transcripts' known errors, text alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from trees import RATE, TONES, fisher

from local.audio import read_side
from local.cli import RecipeError
from recipes.swbd.fisher import KNOWN, prepare, write_text

TEXTS = {
    "fe_03_00027-A_000050-000200": "[laughter] hello i._b._m. [noise]",
    "fe_03_00027-B_000200-000300": "y. two k. wa- was",
    "fe_03_05851-A_000310-000400": "[noise]",
}


def test_ids_times_texts_sexes_and_sides(tmp_path: Path) -> None:
    audio, transcripts = fisher(tmp_path)
    data, about = prepare(transcripts, audio).finish(KNOWN)
    found = {key: " ".join(u.words) for key, u in data.utterances.items() if u.words != ("right",)}
    assert found == TEXTS | {"fe_03_05851-B_000500-001200": "so long"}  # cut to the audio, 12 s
    assert about["left_out"] == {"not understood by the transcriber": 1}
    assert about["mended"] == {"cut to the audio's end": 1}
    assert data.genders == {"fe_03_00027-A": "f", "fe_03_00027-B": "m", "fe_03_05851-A": "f", "fe_03_05851-B": "m"}
    for recording in data.recordings.values():
        samples = read_side(recording.path, recording.channel)
        peak = np.abs(np.fft.rfft(samples)).argmax() * RATE / len(samples)
        assert peak == pytest.approx(TONES["AB".index(recording.side)], abs=1)


def test_text_alone(tmp_path: Path) -> None:
    _, transcripts = fisher(tmp_path)
    write_text(transcripts, tmp_path / "out")
    rows = [line.split(" ", 1) for line in (tmp_path / "out" / "text").read_text().splitlines()]
    assert {key: text for key, text in rows if text != "right"} == TEXTS | {"fe_03_05851-B_000500-001230": "so long"}
    stats = json.loads((tmp_path / "out" / "stats.json").read_text())
    assert (stats["calls"], stats["utterances"]) == (2, 24)
    assert stats["left_out"] == {"not understood by the transcriber": 1}


@pytest.mark.parametrize(
    ("call", "line", "expected"),
    [
        ("11487", "31.09 234.06 B: well", ("fe_03_11487-B_023109-023406", "well")),
        ("00265", "33.53 33.81 B: wrong", ("fe_03_00265-B_003353-003381", "correct")),
        ("10282", "344.42 344.84 A: wrong", ("fe_03_10282-A_034442-034484", "they don't want")),
        ("00027", "393.80 394.05 B: wrong", None),
        ("01326", "307.42 307.93 A: wrong", None),
        ("11487", "31.09 234.06 A: well", ("fe_03_11487-A_003109-023406", "well")),  # another side: as it is
    ],
)
def test_known_errors_are_put_right_or_left_out(call: str, line: str, expected: tuple[str, str] | None, tmp_path: Path) -> None:
    path = tmp_path / "tran" / f"fe_03_{call}.txt"
    path.parent.mkdir()
    path.write_text(f"0.00 1.00 A: hello\n{line}\n")
    write_text([path.parent], tmp_path / "out")
    lines = (tmp_path / "out" / "text").read_text().splitlines()
    assert [tuple(found.split(" ", 1)) for found in lines if "000000" not in found] == ([expected] if expected else [])
    log = (tmp_path / "out" / "not_as_is.txt").read_text()
    assert ("known to be wrong" in log) == (expected is None or expected[1] != "well" or "023109" in expected[0])


def test_a_part_without_transcripts_is_an_error_and_an_unknown_tag_too(tmp_path: Path) -> None:
    audio, transcripts = fisher(tmp_path)
    with pytest.raises(RecipeError, match="1 calls have a transcript but no audio: 05851"):
        prepare(transcripts, audio[:1])
    path = transcripts[0] / "data" / "trans" / "000" / "fe_03_00027.txt"
    path.write_text(path.read_text().replace("[mn]", "[mumble]"))
    with pytest.raises(RecipeError, match=r"fe_03_00027\.txt:4: unknown tag '?\[mumble\]"):
        prepare(transcripts, audio)
