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


def _transcript(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def fisher(root: Path) -> tuple[list[Path], list[Path]]:
    """Both parts in the two forms of LDC's trees, 12 s a call; return the folders of audio and of transcripts."""
    audio = [root / "fisher_eng_tr_sp_d1", root / "LDC2005S13"]
    sphere(audio[0] / "audio" / "000" / "fe_03_00027.sph", 12)
    sphere(audio[1] / "fe_03_p2_sph1" / "audio" / "058" / "FE_03_05851.SPH", 12)
    transcripts = [root / "fe_03_p1_tran", root / "LDC2005T19" / "fe_03_p2_tran"]
    head = ["# fe_03_NNNNN.sph", "# Transcribed at the LDC", ""]
    first = [
        "0.50 1.995 A: [laugh] Hello i._b._m. [mn]",
        "",
        "1.00 2.25 B: (( what )) ever",
        "2.00 3.00 B: y2k wa- was [pause]",
    ]
    first += [f"{3 + i / 4:.2f} {3.2 + i / 4:.2f} B: right" for i in range(20)]
    _transcript(transcripts[0] / "data" / "trans" / "000" / "fe_03_00027.txt", [*head, *first])
    _transcript(
        transcripts[1] / "data" / "trans" / "058" / "fe_03_05851.txt", [*head, "3.10 4.00 A: [sigh]", "5.00 12.30 B: so long"]
    )
    table = ["CALL_ID,DATE_TIME,TOPICID,SIG_GRADE,CNV_GRADE,APIN,ASX.DL,APHNUM,APHSET,APHTYP,BPIN,BSX.DL,BPHNUM,BPHSET,BPHTYP"]
    for folder, call in zip(transcripts, ("00027", "05851"), strict=True):
        row = f"{call},20030101_10:00:00,ENG01,3,3,2602,f.a,,4,1,1790,m.o,,4,3"
        _transcript(folder / "doc" / f"fe_03_p{1 + (call > '05850')}_calldata.tbl", [*table, row])
    return audio, transcripts


def callhome(root: Path) -> tuple[Path, Path]:
    """Two calls in LDC's tree, 30 s each, one with a second person on a side; return the folders of audio and transcripts."""
    audio, transcripts = root / "LDC97S42", root / "LDC97T14" / "callhome_english_trans"
    sphere(audio / "data" / "evltest" / "en_4065.sph", 30)
    sphere(audio / "data" / "train" / "en_4077.sph", 30)
    lines = ["# a remark", "", "10.50 12.25 A: %um, I said {laugh} &Bob went", "  home -- [[a remark]] yesterday.", ""]
    lines += [
        "12.00 13.00 A1: hi!",
        "13.00 14.00 B: ((mumble)) yes",
        "14.00 15.00 B: <French oui> yes",
        "15.00 16.00 B: so- //no// [static]",
    ]
    _transcript(transcripts / "transcrpt" / "evaltest" / "en_4065.txt", lines)
    _transcript(transcripts / "transcrpt" / "train" / "en_4077.txt", ["1.00 2.00 A: **goodie** +wanna+ &U.S."])
    return audio, transcripts


def rt03(root: Path) -> Path:
    """LDC2007S10 with a Switchboard and a Fisher call, 10 s each, and what is not telephone speech beside them."""
    corpus = root / "LDC2007S10"
    part = ("eval03", "english", "cts")
    for call in ("sw_45097", "fsh_60262"):
        sphere(corpus.joinpath("data", "audio", *part, f"{call}.sph"), 10)
        lines = [';; LABEL "O" "Overall" ""', f"{call} 1 {call}_A 0.00 1.29 <O> inter_segment_gap"]
        lines += [
            f"{call} 1 {call}_A 1.29 2.58 <O> HELLO ((%HESITATION) <B_ASIDE> THERE",
            f"{call} 2 {call}_B 3.00 4.00 <O> U. S.",
        ]
        lines += [f"{call} 2 {call}_B 5.00 6.00 <O> IGNORE_TIME_SEGMENT_IN_SCORING"]
        _transcript(corpus.joinpath("data", "references", *part, f"{call}.stm"), lines)
    _transcript(corpus / "data" / "references" / "eval03" / "english" / "bn" / "news.stm", ["news 1 x 0.00 1.00 <O> NEWS"])
    _transcript(corpus / "data" / "trans_rules" / "en20030506.glm", [";; rules", "UH => %HESITATION / [ ] __ [ ]"])
    return corpus


def persons(root: Path) -> Path:
    """LDC's tables: call 2001 between 1020 and 1044; call 2005 is not in them."""
    folder = root / "docs"
    _transcript(folder / "conv_tab.csv", ["2001,Y,1020,1044,303,0,910304,1218,1222, ,"])
    _transcript(folder / "caller_tab.csv", ['1020, 32, "N", "FEMALE", 1958', '1044, 32, "N", "MALE", 1958'])
    return folder


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
