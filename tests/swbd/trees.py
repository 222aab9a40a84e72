"""Miniature LDC trees: two-channel mu-law SPHERE with a tone of its own on each side, and transcripts."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import soundfile

RATE = 8000
TONES = (400.0, 1100.0)  # Hz on side A and side B


def sphere(path: Path, seconds: float, channels: int = 2, keep: float = 1.0, count_both: bool = False) -> None:
    """Write a call; ``keep`` is the share of the data that is there, ``count_both`` counts as release 1 did."""
    time = np.arange(round(seconds * RATE)) / RATE
    sides = np.stack([0.3 * np.sin(2 * np.pi * tone * time) for tone in TONES[:channels]], axis=1)
    raw = io.BytesIO()
    soundfile.write(raw, sides, RATE, format="RAW", subtype="ULAW")
    count = len(time) * (channels if count_both else 1)
    fields = ["NIST_1A", "   1024", f"channel_count -i {channels}", f"sample_rate -i {RATE}", "sample_n_bytes -i 1"]
    fields += [f"sample_count -i {count}", "sample_coding -s4 ulaw", "end_head", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    data = raw.getvalue()
    path.write_bytes("\n".join(fields).encode().ljust(1024) + data[: int(keep * len(data))])


def switchboard(root: Path) -> tuple[Path, Path]:
    """A corpus of two calls, 10 s each; return the folders of audio and transcripts."""
    audio, transcripts = root / "LDC97S62", root / "swb_ms98_transcriptions"
    sphere(audio / "swb1_d1" / "data" / "sw02001.sph", 10)
    sphere(audio / "SWB1_D2" / "DATA" / "SW02005.SPH", 10)
    lines = {
        "2001A": ["0.0 0.975 [silence]", "0.975625 2.564999 hi [laughter-there] um_1 ", "3.005 4.0 <b_aside> no <e_aside>"],
        "2001B": ["1.0 2.0 uh-huh", "9.2 10.3 it's the U.S. [noise]", "10.6 11.0 gone past the end"],
        "2005A": ["0.0 10.0 [silence]"],
        "2005B": ["2.345 2.995 ammu[n]it- [it'n/isn't]"] + [f"{3 + i / 4} {3.2 + i / 4} yeah" for i in range(24)],
    }
    for side, content in lines.items():
        folder = transcripts / side[:2] / side[:4]
        folder.mkdir(parents=True, exist_ok=True)
        name = f"sw{side}-ms98-a"
        rows = [f"{name}-{number:04d} {line}" for number, line in enumerate(content, 1)]
        (folder / f"{name}-trans.text").write_text("\n".join(rows) + "\n")
    return audio, transcripts


def hub5(root: Path) -> tuple[Path, Path]:
    """A test set of one ``sw_`` and one ``en_`` call; return the folders of audio and text."""
    audio, text = root / "LDC2002S09", root / "LDC2002T43"
    reference = text / "2000_hub5_eng_eval_tr" / "reference"
    reference.mkdir(parents=True)
    for call in ("sw_4390", "en_4156"):
        sphere(audio / "english" / f"{call}.sph", 10)
    (audio / "english" / "hub5e_00.pem").write_text(
        "".join(f"{call} {side} unknown_speaker 1.29 2.58\n" for call in ("en_4156", "sw_4390") for side in "AB")
        + "sw_4390 A unknown_speaker 3.00 4.00\n"
    )
    (reference / "hub5e00.english.000405.stm").write_text(
        ';; LABEL "O" "Overall" "Overall"\n;; LABEL "sw" "SWB" ""\n;; LABEL "en" "CH" ""\n'
        "en_4156 A en_4156_A 1.29 2.58 <O,en> HE IS ((%HESITATION) HERE\n"
        "en_4156 B en_4156_B 1.29 2.58 <O,en> U. S. (WE-) WENT\n"
        "sw_4390 A sw_4390_A 1.29 2.58 <O,sw> YES\n"
        "sw_4390 B sw_4390_B 1.29 2.58 <O,sw> NO\n"
        "sw_4390 A sw_4390_A 3.00 4.00 <O,sw> IGNORE_TIME_SEGMENT_IN_SCORING\n"
    )
    (reference / "en20000405_hub5.glm").write_text(";; rules\nUH => %HESITATION / [ ] __ [ ]\n")
    return audio, text
