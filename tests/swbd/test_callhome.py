"""CallHome in miniature: turns over several lines, a second person on a side, what is not understood or not English."""

from __future__ import annotations

from pathlib import Path

from trees import callhome

from local.datadir import DataDir
from recipes.swbd.callhome import KNOWN, prepare


def test_turns_speakers_and_texts(tmp_path: Path) -> None:
    audio, transcripts = callhome(tmp_path)
    data, about = prepare([audio], [transcripts]).finish(KNOWN)
    assert {key: (u.speaker, u.recording, " ".join(u.words)) for key, u in data.utterances.items()} == {
        "en_4065-A_001050-001225": ("en_4065-A", "en_4065-A", "um i said [laughter] bob went home yesterday"),
        "en_4065-Ab_001200-001300": ("en_4065-Ab", "en_4065-A", "hi"),
        "en_4065-B_001500-001600": ("en_4065-B", "en_4065-B", "so- no [noise]"),
        "en_4077-A_000100-000200": ("en_4077-A", "en_4077-A", "goodie wanna u._s."),
    }
    assert about["left_out"] == {"not understood, or not English": 2}
    assert [(r.channel, r.side) for r in data.recordings.values()] == [(0, "A"), (1, "B"), (0, "A")]
    data.write(tmp_path / "out")  # by speaker is by utterance, or Kaldi's rules would refuse it
    assert DataDir.read(tmp_path / "out") == data
