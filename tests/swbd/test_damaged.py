"""Damaged discs and data directories: every damage is named, or every utterance is there but those counted and named.

A case builds a small valid tree, damages one thing, and goes the whole way: prepare, write, read again, decode each side.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from trees import RATE, hub5, sphere

from local.audio import read_side
from local.cli import RecipeError
from local.datadir import DataDir
from recipes.swbd import callhome, eval2000, evalset, fisher, rt03, swbd1

Damage = Callable[[Path], None]
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
TIMES = [f"{0.5 + 0.75 * i:.2f} {1 + 0.75 * i:.2f}" for i in range(len(WORDS))]  # line 3: 2.00 2.50, line 12: 8.75 9.25
A, B, SPH = "sw2001A-ms98-a-trans.text", "sw2001B-ms98-a-trans.text", "sw02001.sph"
FE, EN, PEM, STM, GLM = "fe_03_00001", "en_4065", "hub5e_00.pem", "hub5e00.english.000405.stm", "en20000405_hub5.glm"
FSH, RT_STM, RT_GLM = "fsh_60262.sph", "eval03.stm", "en20030506.glm"
FIRST = "sw1020-02001-A_000050-000100"  # the first utterance of the data directory


# The valid trees: two calls of two sides, 10 s each.


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def _swbd1(root: Path) -> None:
    for call in ("2001", "2005"):
        sphere(root / "audio" / f"sw0{call}.sph", 10)
        for side in (f"{call}A", f"{call}B"):
            rows = [f"sw{side}-ms98-a-{i:04d} {t} {w}" for i, (t, w) in enumerate(zip(TIMES, WORDS, strict=True), 1)]
            _write(root / "text" / f"sw{side}-ms98-a-trans.text", rows)


def _persons(root: Path) -> None:
    _swbd1(root)
    _write(root / "docs" / "conv_tab.csv", ["2001,Y,1020,1044,303,910304", "2005,Y,1050,1020,304,910305"])
    sexes = {"1020": "FEMALE", "1044": "MALE", "1050": "MALE"}
    _write(root / "docs" / "caller_tab.csv", [f'{person}, 1, "N", "{sex}", 1954' for person, sex in sexes.items()])


def _turns(root: Path, names: tuple[str, str], head: list[str]) -> None:
    for name in names:
        sphere(root / "audio" / f"{name}.sph", 10)
        _write(root / "text" / f"{name}.txt", head + [f"{t} {s}: {w}" for t, w in zip(TIMES, WORDS, strict=True) for s in "AB"])


def _rt03(root: Path) -> None:
    part = Path("eval03", "english", "cts")
    rows = [';; LABEL "O" "Overall" "Overall"']
    for call in ("fsh_60262", "sw_46732"):
        sphere(root / "audio" / part / f"{call}.sph", 10)
        for side in "12":
            rows += [f"{call} {side} inter_segment_gap 0.00 1.00 <O>", f"{call} {side} {call}_{side} 1.00 2.00 <O> YES"]
            rows += [f"{call} {side} {call}_{side} 2.00 9.00 <O> WELL NO"]
    _write(root / "references" / part / RT_STM, rows)
    _write(root / "rules" / RT_GLM, [";; rules", "UH => %HESITATION / [ ] __ [ ]"])


def _kaldi(data: Path, discs: Path) -> None:
    _persons(discs)
    process("persons", discs, data)


BUILD: dict[str, Callable[[Path], object]] = {
    "swbd1": _swbd1,
    "persons": _persons,
    "fisher": lambda root: _turns(root, (FE, "fe_03_00002"), ["# fe_03.sph", "# Transcribed at the LDC", ""]),
    "fisher text": lambda root: _turns(root, (FE, "fe_03_00002"), ["# fe_03.sph", "# Transcribed at the LDC", ""]),
    "callhome": lambda root: _turns(root, (EN, "en_4077"), []),
    "eval2000": hub5,
    "rt03": _rt03,
    "kaldi": lambda root: _kaldi(root / "data", root.with_name("discs")),
}


@dataclass
class Outcome:
    """What a preparation has made: utterances with their words, what it counted, and what it said."""

    words: dict[str, str]
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    said: str = ""


def process(kind: str, root: Path, out: Path) -> Outcome:
    """Go the whole way of a command line, and decode every side."""
    audio, text = root / "audio", root / "text"
    if kind == "kaldi":
        return Outcome({key: " ".join(u.words) for key, u in DataDir.read(root / "data").utterances.items()})
    if kind == "swbd1":
        swbd1.prepare([audio], text).write(out, swbd1.KNOWN)
    elif kind == "persons":
        swbd1.prepare([audio], text, root / "docs").write(out, swbd1.KNOWN)
    elif kind == "fisher":
        fisher.prepare([text], [audio]).write(out, fisher.KNOWN)
    elif kind == "fisher text":
        fisher.write_text([text], out)
    elif kind == "callhome":
        callhome.prepare([audio], [text]).write(out, callhome.KNOWN)
    elif kind == "eval2000":
        prepared = eval2000.prepare(root / "LDC2002S09", root / "LDC2002T43")
        evalset.write(kind, *prepared, eval2000.KNOWN, eval2000.KNOWN_SIDES, out)
    else:
        evalset.write(kind, *rt03.prepare(root), rt03.KNOWN, rt03.KNOWN_SIDES, out)
    if kind != "fisher text":
        for recording in DataDir.read(out).recordings.values():
            assert len(read_side(recording.path, recording.channel)) == recording.num_samples
    stats: dict[str, Any] = json.loads((out / "stats.json").read_text())
    log = out / "not_as_is.txt"
    return Outcome(
        {key: rest for key, _, rest in (line.partition(" ") for line in (out / "text").read_text().splitlines())},
        {what: Counter(stats.get(what, {})) for what in ("dropped", "left_out", "mended")},
        log.read_text() if log.exists() else "",
    )


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Outcome]]:
    """The valid tree of each kind, and its outcome."""
    found = {}
    for kind, build in BUILD.items():
        root = tmp_path_factory.mktemp(kind.replace(" ", "_"))
        build(root)
        found[kind] = root, process(kind, root, tmp_path_factory.mktemp("out"))
    return found


# The damages.


def the(root: Path, name: str) -> Path:
    """The one file or folder of a name."""
    (path,) = root.rglob(name)
    return path


def rewrite(name: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(root: Path) -> None:
        path = the(root, name)
        path.write_bytes(change(path.read_bytes()))

    return damage


def row(name: str, number: int, *lines: str) -> Damage:
    """Put lines in place of a line, from 1."""

    def damage(root: Path) -> None:
        path = the(root, name)
        content = path.read_text().splitlines()
        content[number - 1 : number] = lines
        _write(path, content)

    return damage


def replaced(name: str, old: str, new: str) -> Damage:
    return rewrite(name, lambda content: content.replace(old.encode(), new.encode("latin-1"), 1))


def content(name: str, new: bytes) -> Damage:
    return rewrite(name, lambda _: new)


def removed(*names: str) -> Damage:
    def damage(root: Path) -> None:
        for path in [the(root, name) for name in names]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def copied(name: str, to: str) -> Damage:
    def damage(root: Path) -> None:
        path = the(root, name)
        (path.parent / to).parent.mkdir(exist_ok=True)
        shutil.copy(path, path.parent / to)

    return damage


def both(*damages: Damage) -> Damage:
    def damage(root: Path) -> None:
        for one in damages:
            one(root)

    return damage


def cut(name: str, keep: int) -> Damage:
    return rewrite(name, lambda content: content[:keep])


def head(old: str, new: str, name: str = SPH) -> Damage:
    """Put a part of a SPHERE header in place of another; the header's length stays."""

    def change(content: bytes) -> bytes:
        fields = content[:1024].replace(old.encode(), new.encode("latin-1"))
        return fields.rstrip().ljust(1024) + content[1024:]

    return rewrite(name, change)


def other_audio(suffix: str, channels: int = 2, rate: int = RATE, change: Callable[[bytes], bytes] = bytes) -> Damage:
    """Put WAV or FLAC in place of the SPHERE file."""

    def damage(root: Path) -> None:
        path = the(root, SPH)
        path.unlink()
        path = path.with_suffix(suffix)
        samples = np.random.default_rng(1).integers(-3000, 3000, (10 * rate, channels), dtype=np.int16)
        soundfile.write(path, samples, rate, subtype="PCM_16")
        path.write_bytes(change(path.read_bytes()))

    return damage


def streamed(length: int) -> Callable[[bytes], bytes]:
    """A WAV whose writer did not know the length."""
    mark = struct.pack("<I", length)
    return lambda content: content[:4] + mark + content[8:40] + mark + content[44:]


def linked(root: Path) -> None:
    path = the(root, SPH)
    path.unlink()
    path.symlink_to(path.with_name("gone.sph"))


def folder_instead(root: Path) -> None:
    path = the(root, SPH)
    path.unlink()
    path.mkdir()


def swapped(root: Path) -> None:
    first, second = the(root, A), the(root, B)
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def upper_names(root: Path) -> None:
    for path in [path for path in root.rglob("*") if path.is_file()]:
        path.rename(path.with_name(path.name.upper()))


def all_silent(root: Path) -> None:
    for path in root.rglob("*.text"):
        path.write_text(re.sub(r" [a-z]+\n", " [silence]\n", path.read_text()))


def reversed_lines(name: str) -> Damage:
    return rewrite(name, lambda content: b"".join(reversed(content.splitlines(keepends=True))))


# What must happen.


@dataclass
class Goes:
    """The preparation goes on, and each segment is taken or counted."""

    says: str = ""  # what the log or a message says
    dropped: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    mended: Mapping[str, int] = field(default_factory=dict)
    added: int = 0  # segments that the damage puts in
    gone: int = 0  # ids that are no more: dropped, left out, or of other times
    reworded: int = 0
    silent: int = 0  # segments in which nothing is said any more


@dataclass
class Told:
    """Either an error or a message names it."""

    says: str


Expected = str | Goes | Told  # str: a RecipeError
START, PAST, TWICE = "does not end after its start", "ends more than 0.5 s past the audio", "same times as another"
OVERLAP, END, UNCLEAR = "overlaps one before it (kept)", "cut to the audio's end", "not understood by the transcriber"
SHORT = "shorter than 1/100 s"
CASES: list[Any] = []


def case(kind: str, title: str, damage: Damage, expected: Expected) -> None:
    name = f"{kind}: {title}"
    CASES.append(pytest.param(kind, damage, expected, id=name))


def dropped(reason: str, where: str, gone: int = 1, added: int = 0) -> Goes:
    return Goes(f"{re.escape(where)}: dropped: {reason}", dropped={reason: 1}, gone=gone, added=added)


# Audio: SPHERE.
DAMAGED = r"sw02001\.sph: damaged SPHERE header"
case("swbd1", "audio cut in its header", cut(SPH, 500), rf"{DAMAGED} \(header claims 1024 bytes but only 500")
case("swbd1", "audio cut behind its header", cut(SPH, 1024), r"sw02001\.sph: cut short: .* 80000 samples .* hold 0;")
case("swbd1", "audio cut early", cut(SPH, 17024), r"sw02001\.sph: cut short: .* 80000 samples .* hold 8000;")
case("swbd1", "audio cut by a byte", cut(SPH, 161023), r"sw02001\.sph: cut short: .* 80000 samples .* hold 79999;")
case("swbd1", "audio cut in half", cut(SPH, 81024), r"sw02001\.sph: cut short: the data hold half .*\(1 of 2 calls")
case("fisher", "audio cut in half", cut(f"{FE}.sph", 81024), rf"{FE}\.sph: cut short: the data hold half")
case("callhome", "audio cut late", cut(f"{EN}.sph", 150000), rf"{EN}\.sph: cut short: .* 80000 samples .* hold 74488;")
case("eval2000", "audio cut early", cut("en_4156.sph", 9024), r"en_4156\.sph: cut short: .* 80000 samples .* hold 4000;")
case("rt03", "audio cut early", cut(FSH, 9024), r"fsh_60262\.sph: cut short: .* 80000 samples .* hold 4000;")
NO_AUDIO = r"sw02001\.sph: no audio that SPHERE or libsndfile reads"
case("swbd1", "audio empty", content(SPH, b""), NO_AUDIO)
case("swbd1", "text named sph", content(SPH, b"404 not found\n"), NO_AUDIO)
case("swbd1", "wrong magic", head("NIST_1A", "NIST_1B"), NO_AUDIO)
case("swbd1", "magic alone", cut(SPH, 7), DAMAGED)
case("swbd1", "header length no number", head("   1024", "   1O24"), rf"{DAMAGED} .*1O24")
case("swbd1", "header length negative", head("   1024", "  -1024"), rf"{DAMAGED} .*-1024")
case("swbd1", "header longer than the file", head("   1024", " 999999"), rf"{DAMAGED} .*999999")
case("swbd1", "header length absurd", head("   1024", "9" * 30), rf"{DAMAGED}.*999")
case("swbd1", "header without end", head("end_head", "        "), rf"{DAMAGED} .*end_head")
case("swbd1", "header not ASCII", head("end_head", "speaker -s4 Jos\xe9\nend_head"), rf"{DAMAGED} .*ASCII")
case("swbd1", "header without types", head("channel_count -i 2", "channel_count 2"), rf"{DAMAGED} .*channel_count 2")
COUNT = "sample_count -i 80000"
case("swbd1", "sample_count missing", head(COUNT, ""), rf"{DAMAGED} .*missing .*sample_count")
case("swbd1", "sample_count negative", head(COUNT, "sample_count -i -5"), rf"{DAMAGED} .*sample_count .*-5")
case("swbd1", "sample_count huge", head(COUNT, f"sample_count -i {10**15}"), r"sw02001\.sph: cut short: .*promises 10{15} ")
case("swbd1", "sample_count a word", head(COUNT, "sample_count -s5 eight"), rf"{DAMAGED} .*sample_count.*eight")
case("swbd1", "sample_count infinite", head(COUNT, "sample_count -r inf"), rf"{DAMAGED}.*inf")
case("swbd1", "sample_count 0", head(COUNT, "sample_count -i 0"), rf"24 of 48 .*{PAST}.*sw2001A-ms98-a-trans\.text:1:")
case("swbd1", "rate 16000", head("-i 8000\n", "-i 16000\n"), r"sw02001\.sph: expected 8000 Hz, found 16000 Hz")
case("swbd1", "rate 0", head("-i 8000\n", "-i 0\n"), rf"{DAMAGED} .*sample_rate .* 0")
case("swbd1", "one channel", head("count -i 2", "count -i 1"), r"sw02001\.sph: side B is missing: the file has 1 channel")
case("swbd1", "no channel", head("count -i 2", "count -i 0"), rf"{DAMAGED} .*channel_count .* 0")
case("swbd1", "three channels", head("count -i 2", "count -i 3"), r"sw02001\.sph: .*promises 80000 .* hold 53333")
case("swbd1", "unknown coding", head("-s4 ulaw", "-s4 g729"), r"sw02001\.sph: .*g729")
GARBLED = (("-s4 ulaw", "-s4 g729"), ("n_bytes -i 1", "n_bytes -i 2"), (COUNT, "sample_count -i 40000"))
PLAIN = both(*(head(old, new, "en_4156.sph") for old, new in GARBLED))
case("eval2000", "unknown coding of two bytes", PLAIN, r"en_4156\.sph: .*g729")
case("swbd1", "coding missing", head("sample_coding -s4 ulaw\n", ""), r"sw02001\.sph: .*pcm")
case(
    "swbd1",
    "two bytes a sample of mu-law",
    head("n_bytes -i 1", "n_bytes -i 2"),
    r"sw02001\.sph: sample_coding 'ulaw' of 2 byte",
)
case(
    "callhome",
    "two bytes a sample of mu-law",
    head("n_bytes -i 1", "n_bytes -i 2", f"{EN}.sph"),
    rf"{EN}\.sph: sample_coding 'ulaw' of 2 byte",
)
SHORTEN = head("-s4 ulaw", "-s26 ulaw,embedded-shorten-v2.00")
case("swbd1", "no shorten in it", SHORTEN, r"sw02001\.sph: the shorten-compressed data are damaged")
case("swbd1", "link to nowhere", linked, r"sw02001\.sph: no such audio file")
case("swbd1", "folder named sph", folder_instead, r"sw02001\.sph: ")

# Audio: other formats.
case("swbd1", "WAV streamed, 2147483647", other_audio(".wav", change=streamed(2**31 - 1)), Goes())
case("swbd1", "WAV streamed, 4294967295", other_audio(".wav", change=streamed(2**32 - 1)), Goes())
CUT_WAV = other_audio(".wav", change=lambda content: content[: 44 + 9 * RATE * 4])
case("swbd1", "WAV cut at 9 s", CUT_WAV, Goes(rf"{A}:12: {END}", mended={END: 2}, gone=2))
case("swbd1", "WAV cut in its header", other_audio(".wav", change=lambda content: content[:30]), r"sw02001\.wav: no audio")
case("swbd1", "WAV of 16 kHz", other_audio(".wav", rate=16000), r"sw02001\.wav: expected 8000 Hz, found 16000 Hz")
case("swbd1", "WAV of one channel", other_audio(".wav", 1), r"sw02001\.wav: side B is missing: the file has 1 channel")
case("swbd1", "WAV of three channels", other_audio(".wav", 3), r"sw02001\.wav: too many channels: the file has 3 channel")
case("swbd1", "FLAC cut", other_audio(".flac", change=lambda content: content[:100_000]), r"sw02001\.flac: ")

# What is there, and what is not.
AUDIO_LOST, TEXT_LOST = "1 calls have a transcript but no audio: ", "1 of 2 calls have audio but no transcript: "
case("swbd1", "audio of a call missing", removed(SPH), f"swbd1: {AUDIO_LOST}2001;")
case("fisher", "audio of a call missing", removed(f"{FE}.sph"), f"fisher: {AUDIO_LOST}00001;")
case("callhome", "audio of a call missing", removed(f"{EN}.sph"), f"callhome: {AUDIO_LOST}4065;")
case("eval2000", "audio of a call missing", removed("en_4156.sph"), "eval2000: no audio for the calls en_4156;")
case("rt03", "audio of a call missing", removed(FSH), "rt03: no audio for the calls fsh_60262;")
case("swbd1", "transcripts of a call missing", removed(A, B), Goes(f"warning: swbd1: {TEXT_LOST}2001", gone=24, added=-24))
case("fisher", "transcript of a call missing", removed(f"{FE}.txt"), Goes(f"{TEXT_LOST}00001", gone=24, added=-24))
case("callhome", "transcript of a call missing", removed(f"{EN}.txt"), Goes(f"{TEXT_LOST}4065", gone=24, added=-24))
case("swbd1", "transcript of a side missing", removed(B), Told("2001B"))
MORE = both(copied(SPH, "sw02008.sph"), copied(SPH, "sw02009.sph"))
case("swbd1", "transcripts of half the calls", MORE, "swbd1: 2 of 4 calls have audio but no transcript: 2008, 2009; give all")
case("rt03", "reference of a call missing", copied(FSH, "fsh_60399.sph"), Told("fsh_60399"))
case("swbd1", "no folder of audio", removed("audio"), r"/audio: no such folder; expected the discs of LDC97S62")
case("swbd1", "no folder of transcripts", removed("text"), r"/text: no such folder; expected the unpacked swb_ms98")
case("fisher", "no folder of audio", removed("audio"), r"/audio: no such folder; expected the discs of LDC2004S13")
case("fisher text", "no folder", removed("text"), r"/text: no such folder; expected fe_03_p1_tran")
case("callhome", "no folder of transcripts", removed("text"), r"/text: no such folder; expected the transcrpt/")
case("eval2000", "no folder of audio", removed("LDC2002S09"), r"LDC2002S09: expected one pem .* found 0")
case("eval2000", "no folder of text", removed("LDC2002T43"), r"LDC2002T43: expected one stm .* found 0")
case("persons", "no folder of tables", removed("docs"), r"/docs: no such folder; expected conv_tab\.csv")
case("swbd1", "no transcripts", removed(A, B, A.replace("01", "05"), B.replace("01", "05")), r"/text: nothing there like")
case("fisher", "no audio", removed(f"{FE}.sph", "fe_03_00002.sph"), r"/audio: nothing there like")
case("callhome", "no transcripts", removed(f"{EN}.txt", "en_4077.txt"), r"/text: nothing there like")
case("swbd1", "a call twice", copied(SPH, "again/sw2001.wav"), r"2001 stands there twice: .*sw2001\.wav and .*sw02001\.sph")
case("swbd1", "a transcript twice", copied(A, f"again/{A}"), rf"2001A stands there twice: .*{A} and .*{A}; remove one")
case("fisher", "a call twice", copied(f"{FE}.sph", f"{FE}.flac"), rf"00001 stands there twice: .*{FE}\.flac and .*{FE}\.sph")
case("fisher text", "a call twice", copied(f"{FE}.txt", f"p2/{FE}.TXT"), rf"00001 stands there twice: .*{FE}")
case("callhome", "a call twice", copied(f"{EN}.txt", f"devtest/{EN}.txt"), rf"4065 stands there twice: .*{EN}\.txt and")
case("eval2000", "a call twice", copied("en_4156.sph", "b/en_4156.sph"), r"EN_4156 stands there twice: .*en_4156\.sph and")
case("rt03", "a call twice", copied(FSH, f"b/{FSH}"), r"FSH_60262 stands there twice: .*fsh_60262\.sph and")
for kind in ("swbd1", "fisher", "callhome", "eval2000", "rt03"):
    case(kind, "names in upper case", upper_names, Goes())
case("swbd1", "transcript empty", content(A, b""), Goes(rf"no utterance in {A}", gone=12, added=-12))
for kind, name in (("fisher", FE), ("fisher text", FE), ("callhome", EN)):
    case(kind, "transcript empty", content(f"{name}.txt", b""), Told(rf"{name}\.txt"))

# Bytes of transcripts.
TEXTS = {"swbd1": A, "fisher": f"{FE}.txt", "callhome": f"{EN}.txt", "eval2000": STM, "rt03": RT_STM}
for kind, name in TEXTS.items():
    case(kind, "CRLF", rewrite(name, lambda content: content.replace(b"\n", b"\r\n")), Goes())
    case(kind, "CR as on old Macs", rewrite(name, lambda content: content.replace(b"\n", b"\r")), Goes())
    case(kind, "BOM", rewrite(name, lambda content: b"\xef\xbb\xbf" + content), Goes())
case("eval2000", "pem with BOM and CR", rewrite(PEM, lambda old: b"\xef\xbb\xbf" + old.replace(b"\n", b"\r")), Goes())
case("swbd1", "Latin-1", replaced(A, "two", "caf\xe9"), Goes(reworded=1))
case("eval2000", "Latin-1", replaced(STM, "YES", "CAF\xc9"), Goes(reworded=1))
case("swbd1", "NUL", replaced(A, "two", "t\0wo"), rf"{A}:3: control characters in .*t\\x00wo")
case("fisher text", "NULs at its end", rewrite(f"{FE}.txt", lambda content: content + bytes(512)), rf"{FE}\.txt:28: control")
case("callhome", "escape sequence", replaced(f"{EN}.txt", "two", "\x1b[31mtwo"), rf"{EN}\.txt:5: control characters")
case("eval2000", "form feed", replaced(STM, "YES", "\x0cYES"), rf"{STM}:6: control characters")
case("rt03", "Windows' apostrophe", replaced(RT_STM, "YES", "IT\x92S"), rf"{RT_STM}:3: control characters")
case("fisher", "UTF-16", rewrite(f"{FE}.txt", lambda old: old.decode().encode("utf-16")), rf"{FE}\.txt:1: control characters")

# Times and columns of Switchboard's transcripts.
FORM, ID = rf"{A}:3: expected 'id start end words', found ", "sw2001A-ms98-a-0003"


def third(rest: str) -> Damage:
    return row(A, 3, f"{ID} {rest}")


case("swbd1", "end before start", third("2.50 2.00 two"), dropped(START, f"{A}:3"))
case("swbd1", "equal times", third("2.00 2.00 two"), dropped(START, f"{A}:3"))
case("swbd1", "negative start", third("-2.00 2.50 two"), dropped(START, f"{A}:3"))
case("swbd1", "shorter than the grid", third("2.001 2.002 two"), dropped(SHORT, f"{A}:3"))
case("swbd1", "NaN", third("nan 2.50 two"), f"{FORM}'{ID} nan")
case("swbd1", "infinite", third("2.00 inf two"), f"{FORM}'{ID} 2.00 inf")
case("swbd1", "comma", third("2,00 2,50 two"), f"{FORM}'{ID} 2,00")
case("swbd1", "start missing", third("2.50 two"), f"{FORM}'{ID} 2.50 two")
case("swbd1", "times missing", third(""), f"{FORM}'{ID} ")
case("swbd1", "words missing", third("2.00 2.50"), Told(rf"{A}:3: "))
case("swbd1", "end of 10 to the power of 5000", third("2.00 1e5000 two"), f"{FORM}'{ID} 2.00 1e5000")
case("swbd1", "start of 10 to the power of 999999", third("1e999999 2.50 two"), Told(rf"{A}:3: "))
case("swbd1", "a line twice", row(A, 3, *[f"{ID} 2.00 2.50 two"] * 2), dropped(TWICE, f"{A}:4", gone=0, added=1))
SAME = row(A, 3, f"{ID} 2.00 2.50 two", f"{ID} 2.001 2.499 other")
case("swbd1", "times that round to another's", SAME, dropped(TWICE, f"{A}:4", gone=0, added=1))
case("swbd1", "overlap", third("1.50 2.50 two"), Goes(mended={OVERLAP: 1}, gone=1))
case("swbd1", "a little past the end", row(A, 12, f"{ID} 8.75 10.40 x"), Goes(rf"{A}:12: {END}", mended={END: 1}, gone=1))
case("swbd1", "far past the end", row(A, 12, f"{ID} 8.75 10.60 x"), dropped(PAST, f"{A}:12"))
case("swbd1", "begins past the end", row(A, 12, f"{ID} 10.10 10.40 x"), dropped("begins past the audio", f"{A}:12"))
LOST = row(A, 12, *(f"{ID} {second}.00 {second}.50 x" for second in (11, 12, 13)))
case("swbd1", "6 % lost", LOST, rf"swbd1: 3 of 50 utterances dropped .*{PAST}.* more than 5 % .*: {A}:12: dropped")
case("swbd1", "a line of the other side", row(A, 3, "sw2001B-ms98-a-0003 2.00 2.50 two"), rf"{A}:3: .*2001A, found sw2001B")
case("swbd1", "a line of another call", row(A, 3, "sw2005A-ms98-a-0003 2.00 2.50 two"), rf"{A}:3: .*2001A, found sw2005A")
case("swbd1", "sides swapped", swapped, rf"{A}:1: expected a line of side 2001A, found sw2001B.*swapped")
case("swbd1", "a line of silence", replaced(A, "two", "[silence]"), Goes(gone=1, silent=1))
SILENCE = rewrite(A, lambda content: re.sub(rb"[a-z]+\n", b"[silence]\n", content))
case("swbd1", "a side of silence", SILENCE, Goes(rf"side sw02001-A: no utterance in {A}", gone=12, silent=12))
case("swbd1", "only silence", all_silent, "swbd1: no utterance: the corpus is empty")
case("swbd1", "a word of the decoder's own", third("2.00 2.50 <s>"), r"sw02001-A_000200-000250: the word '<s>' may not")

# LDC's tables of persons.
CONV = "conv_tab.csv"
case("persons", "conv_tab of another form", row(CONV, 1, "2001,FEMALE,1954,N"), rf"{CONV}: expected .*found '2001,FEMALE")
case("persons", "conv_tab short of a column", row(CONV, 1, "2001,Y,1020"), rf"{CONV}: expected .*found '2001,Y,1020")
case("persons", "conv_tab with letters", row(CONV, 2, "2005,Y,1050,102O,3"), rf"{CONV}: expected .*found '2005,Y,1050,102O")
case("persons", "conv_tab empty", content(CONV, b""), rf"{CONV}: no line 'call,flag")
case("persons", "conv_tab of a header alone", content(CONV, b"conv_no,,from,to\n"), rf"{CONV}: no line 'call,flag")
case("persons", "conv_tab missing", removed(CONV), r"/docs: no conv_tab\.csv")
case("persons", "conv_tab twice", copied(CONV, "conv.tab"), r"CONV stands there twice: .*conv\.tab and .*conv_tab\.csv")
case("persons", "conv_tab short of a call", row(CONV, 1), Goes("2 of 4 sides have no person", gone=24))
OPEN = row(CONV, 1, '2001,Y,1020,1044,"303')
case("persons", "conv_tab with an open quote", OPEN, Goes("2 of 4 sides have no person", gone=24))
case("persons", "conv_tab with a line of 200000 letters", row(CONV, 1, "2001,Y,1020,1044," + "x" * 200_000), Told(CONV))
case("persons", "caller_tab missing", removed("caller_tab.csv"), Goes())
case("persons", "caller_tab with NUL", replaced("caller_tab.csv", "1044", "10\x0044"), r"caller_tab\.csv:2: control characters")

# Fisher: lines 4 and 5 are the first segments of A and B, line 8 is A's third.
F, FORM = f"{FE}.txt", rf"{FE}\.txt:8: expected 'start end A\|B: text', found "
for kind in ("fisher", "fisher text"):
    case(kind, "unknown tag", row(F, 8, "2.00 2.50 A: [burp] two"), rf"{F}:8: unknown tag \[burp\]")
    case(kind, "speaker C", row(F, 8, "2.00 2.50 C: two"), f"{FORM}'2.00 2.50 C: two")
    unclear = Goes(rf"{F}:8: left out: {UNCLEAR}", left_out={UNCLEAR: 1}, gone=1)
    case(kind, "not understood", row(F, 8, "2.00 2.50 A: (( two ))"), unclear)
case("fisher", "end of 10 to the power of 5000", row(F, 8, "2.00 1e5000 A: two"), Told(rf"{F}:8: "))
case("fisher text", "end of 10 to the power of 5000", row(F, 8, "2.00 1e5000 A: two"), Told(rf"{F}:8: "))
case("fisher", "time missing", row(F, 8, "2.00 A: two"), f"{FORM}'2.00 A: two")
case("fisher", "speaker missing", row(F, 8, "2.00 2.50 two"), f"{FORM}'2.00 2.50 two")
case("fisher", "NaN", row(F, 8, "2.00 NaN A: two"), f"{FORM}'2.00 NaN")
case("fisher text", "comma", row(F, 8, "2,00 2,50 A: two"), f"{FORM}'2,00")
case("fisher", "text missing", row(F, 8, "2.00 2.50 A:"), Told(rf"{F}:8: "))
case("fisher", "negative end", row(F, 8, "-3.00 -2.50 A: two"), dropped(START, f"{F}:8"))
case("fisher", "a segment twice", row(F, 8, *["2.00 2.50 A: two"] * 2), dropped(TWICE, f"{F}:9", gone=0, added=1))
case("fisher text", "a segment twice", row(F, 8, "2.00 2.50 A: two", "2.00 2.50 A: more"), Told(rf"{F}:9: "))
case("fisher", "overlap", row(F, 8, "1.50 2.50 A: two"), Goes(mended={OVERLAP: 1}, gone=1))
case("fisher", "far past the end", row(F, 26, "8.75 99.00 A: eleven"), dropped(PAST, f"{F}:26"))

# CallHome: line 5 is A's third segment.
C, FORM = f"{EN}.txt", rf"{EN}\.txt:5: expected 'start end A\|B: text', found "
case("callhome", "speaker C", row(C, 5, "2.00 2.50 C: two"), f"{FORM}'2.00 2.50 C: two")
case("callhome", "speaker C, whole seconds", row(C, 5, "2 3 C: two"), Told(rf"{C}:5: "))
case("callhome", "time missing", row(C, 5, "2.00 A: two"), f"{FORM}'2.00 A: two")
case("callhome", "times missing", row(C, 5, "A: two"), Told(rf"{C}:5: "))
case("callhome", "NaN", row(C, 5, "nan 2.50 A: two"), f"{FORM}'nan")
case("callhome", "infinite", row(C, 5, "inf 2.50 A: two"), Told(rf"{C}:5: "))
case("callhome", "comma", row(C, 5, "2,00 2,50 A: two"), Told(rf"{C}:5: "))
case("callhome", "two points", row(C, 5, "2.0.0 2.50 A: two"), f"{FORM}'2.0.0")
case("callhome", "no turn to go on with", row(C, 1, "and so on"), rf"{C}:1: expected 'start end A\|B: text', found 'and so on'")
case("callhome", "end before start", row(C, 5, "2.50 2.00 A: two"), dropped(START, f"{C}:5"))
case("callhome", "a turn twice", row(C, 5, *["2.00 2.50 A: two"] * 2), dropped(TWICE, f"{C}:6", gone=0, added=1))
case("callhome", "overlap", row(C, 5, "1.50 2.50 A: two"), Goes(mended={OVERLAP: 1}, gone=1))
FOREIGN = "not understood, or not English"
case("callhome", "foreign", row(C, 5, "2.00 2.50 A: <French oui>"), Goes(rf"{C}:5: left", left_out={FOREIGN: 1}, gone=1))
case("callhome", "a little past the end", row(C, 24, "8.75 10.40 B: x"), Goes(rf"{C}:24: {END}", mended={END: 1}, gone=1))

# Hub5'00.
SEGMENT, CALL = r"expected 'call A\|B speaker start end \.\.\.' with start < end, found ", "en_4156 A unknown_speaker"
DIFFERS = r"eval2000: \d scored segments of the stm are not in the pem, the first is "
case("eval2000", "pem empty", content(PEM, b""), f"{DIFFERS}en_4156 A 1.29 2.58")
case("eval2000", "pem missing", removed(PEM), r"LDC2002S09: expected one pem .* found 0")
case("eval2000", "pem twice", copied(PEM, f"b/{PEM}"), r"LDC2002S09: expected one pem .* found 2: .*hub5e_00")
case("eval2000", "pem short of a segment", row(PEM, 2), f"{DIFFERS}en_4156 B 1.29 2.58")
case("eval2000", "pem of other times", row(PEM, 2, "en_4156 B unknown_speaker 1.29 2.59"), f"{DIFFERS}en_4156 B 1.29 2.58")
case("eval2000", "pem with NaN", row(PEM, 1, f"{CALL} nan 2.58"), rf"{PEM}:1: {SEGMENT}'{CALL} nan")
case("eval2000", "pem with a comma", row(PEM, 1, f"{CALL} 1,29 2,58"), rf"{PEM}:1: {SEGMENT}'{CALL} 1,29")
case("eval2000", "pem with a negative time", row(PEM, 1, f"{CALL} -1.29 2.58"), rf"{PEM}:1: {SEGMENT}'{CALL} -1.29")
case("eval2000", "pem short of a column", row(PEM, 1, f"{CALL} 1.29"), rf"{PEM}:1: {SEGMENT}'{CALL} 1.29'")
case("eval2000", "pem with an absurd time", row(PEM, 5, f"{CALL} 1.29 1e999999"), Told(rf"{PEM}:5: "))
case("eval2000", "pem with a segment twice", row(PEM, 5, "sw_4390 A unknown_speaker 3.00 4.00", f"{CALL} 1.29 2.58"), Goes())
case("eval2000", "a segment far past the audio", row(PEM, 5, f"{CALL} 11.00 12.00"), r"en_4156\.sph: .*en_4156 A at 11.* past")
case("eval2000", "a segment partly past the audio", row(PEM, 5, f"{CALL} 8.00 15.00"), Told(r"en_4156.*(8\.00?|15\.00?)"))
case("eval2000", "stm short of a segment", row(STM, 5), Told(r"en_4156 B 1\.29"))
case("eval2000", "stm missing", removed(STM), r"LDC2002T43: expected one stm .* found 0")
case("eval2000", "stm empty", content(STM, b""), rf"{STM}: no segment to score")
case("eval2000", "stm twice", copied(STM, f"b/{STM}"), r"LDC2002T43: expected one stm .* found 2")
REF = "en_4156 A en_4156_A"
AGAIN = row(STM, 4, *[f"{REF} 1.29 2.58 <O,en> HE"] * 2)
case("eval2000", "stm with a segment twice", AGAIN, rf"{STM}:5: the segment {REF} 1\.29 2\.58 stands there twice")
case("eval2000", "stm with equal times", row(STM, 4, f"{REF} 1.29 1.29 <O,en> HE"), rf"{STM}:4: {SEGMENT}'{REF} 1.29 1.29")
case("eval2000", "stm with channel C", row(STM, 4, "en_4156 C x 1.29 2.58 <O,en> HE"), rf"{STM}:4: {SEGMENT}'en_4156 C")
case("eval2000", "stm with an unknown label", row(STM, 4, f"{REF} 1.29 2.58 <O,xx> HE"), rf"{STM}:4: .*label 'xx'")
case("eval2000", "stm with an open parenthesis", row(STM, 4, f"{REF} 1.29 2.58 <O,en> (HE"), rf"{STM}:4: parenthes")
case("eval2000", "glm missing", removed(GLM), r"LDC2002T43: expected one glm .* found 0")
case("eval2000", "glm twice", copied(GLM, f"b/{GLM}"), r"LDC2002T43: expected one glm .* found 2")
case("eval2000", "glm with a line that is no rule", row(GLM, 2, "UH %HESITATION"), rf"{GLM}: no rule 'A => B'")
case("eval2000", "glm empty", content(GLM, b""), Told(GLM))

# RT-03.
case("rt03", "stm with channel 3", replaced(RT_STM, "262 1 fsh", "262 3 fsh"), rf"{RT_STM}:3: {SEGMENT}'fsh_60262 3")
case("rt03", "stm with an empty time", replaced(RT_STM, "1.00 2.00 <O>", "1.00 <O>"), rf"{RT_STM}:3: {SEGMENT}'fsh_60262 1")
case("rt03", "stm twice", copied(RT_STM, "copy.stm"), rf"({RT_STM}|copy\.stm):3: the segment .* stands there twice; remove one")
case("rt03", "stm missing", removed(RT_STM), r"no stm in a folder eval03/english/cts below; expected LDC2007S10")
case("rt03", "stm of nothing scored", content(RT_STM, b"fsh_60262 1 inter_segment_gap 0 9 <O>\n"), rf"{RT_STM}: no segment")
case("rt03", "glm missing", removed(RT_GLM), r"expected one glm .* found 0")
LATE = replaced(RT_STM, "2.00 9.00", "20.0 29.0")
case("rt03", "a segment past the audio", LATE, r"fsh_60262\.sph: .*fsh_60262 A at 20.* past")

# A Kaldi data directory.
for name in ("wav.scp", "segments", "text", "utt2spk", "reco2dur", "reco2file_and_channel"):
    case("kaldi", f"no {name}", removed(name), rf"/data/{name}: no such file")
AT = r"/data.*: damaged data directory at "
AGAIN = row("segments", 2, f"{FIRST} sw02001-A 0.50 1.00")
case("kaldi", "a key twice", AGAIN, rf"/segments:2: the key {FIRST} stands there twice")
case("kaldi", "a text twice", row("text", 2, f"{FIRST} two"), rf"/text:2: the key {FIRST} stands there twice")
case("kaldi", "empty line", row("utt2spk", 2, ""), r"/utt2spk:2: empty line")
case("kaldi", "segments of 3 columns", row("segments", 1, f"{FIRST} sw02001-A 0.50"), f"{AT}{FIRST} .*expected 3")
case("kaldi", "segments of 5 columns", row("segments", 1, f"{FIRST} sw02001-A 0.50 1.00 A"), f"{AT}{FIRST} .*expected 3")
case("kaldi", "segments with tabs", replaced("segments", " ", "\t"), f"{AT}{FIRST}")
case("kaldi", "segments with a word as time", row("segments", 1, f"{FIRST} sw02001-A 0.50 one"), f"{AT}{FIRST} .*'one'")
case("kaldi", "segments with NaN", row("segments", 1, f"{FIRST} sw02001-A nan 1.00"), Told(FIRST))
case("kaldi", "segments with end before start", row("segments", 1, f"{FIRST} sw02001-A 1.00 0.50"), Told(FIRST))
case("kaldi", "unknown recording", row("segments", 1, f"{FIRST} sw09999-A 0.50 1.00"), Told(FIRST))
case("kaldi", "segments cut", rewrite("segments", lambda old: b"".join(old.splitlines(True)[1:])), Told(FIRST))
case("kaldi", "segments empty", content("segments", b""), Told("segments"))
STRANGE = row("text", 1, f"{FIRST} zero", "sw1020-02001-A_9 more")
case("kaldi", "text of an unknown utterance", STRANGE, Told("sw1020-02001-A_9"))
case("kaldi", "an utterance without text", row("text", 1), f"{AT}{FIRST}")
case("kaldi", "an utterance without speaker", row("utt2spk", 1), f"{AT}{FIRST}")
case("kaldi", "utt2spk of 3 columns", row("utt2spk", 1, f"{FIRST} sw1020 F"), Told(FIRST))
case("kaldi", "utt2spk of 1 column", row("utt2spk", 1, FIRST), Told(FIRST))
case("kaldi", "text not UTF-8", replaced("text", "zero", "caf\xe9"), r"/text")
case("kaldi", "text with BOM", rewrite("text", lambda old: b"\xef\xbb\xbf" + old), f"{AT}{FIRST}")
case("kaldi", "CRLF", rewrite("segments", lambda old: old.replace(b"\n", b"\r\n")), Goes())
case("kaldi", "unsorted", both(reversed_lines("segments"), reversed_lines("text")), Goes())
case("kaldi", "wav.scp without channel", row("wav.scp", 1, "sw02001-A call.sph"), f"{AT}sw02001-A ")
QUOTE = row("wav.scp", 1, "sw02001-A python -m local.audio 'it 0 |")
case("kaldi", "wav.scp with an open quote", QUOTE, f"{AT}sw02001-A .*quot")
case("kaldi", "wav.scp of another recipe", row("wav.scp", 1, "sw02001-A sox a.wav -t wav - |"), f"{AT}sw02001-A .*'-'")
case("kaldi", "file_and_channel of 2 columns", row("reco2file_and_channel", 1, "sw02001-A A"), f"{AT}sw02001-A ")
case("kaldi", "side C", row("reco2file_and_channel", 1, "sw02001-A sw02001 C"), Told("sw02001-A"))
case("kaldi", "reco2dur no number", row("reco2dur", 1, "sw02001-A ten"), f"{AT}sw02001-A .*'ten'")
case("kaldi", "reco2dur NaN", row("reco2dur", 1, "sw02001-A nan"), f"{AT}sw02001-A ")
case("kaldi", "reco2dur infinite", row("reco2dur", 1, "sw02001-A inf"), f"{AT}sw02001-A ")
case("kaldi", "a recording without duration", row("reco2dur", 1), f"{AT}sw02001-A ")


LABEL = replaced(RT_STM, "1.00 2.00 <O>", "1.00 2.00 <O,xx>")
case("rt03", "stm with an unknown label", LABEL, rf"^{RT_STM}:3: the label 'xx'")
NO_RULE = rewrite(RT_GLM, lambda content: content + b"UM %HESITATION\n")
case("rt03", "glm with a line that is no rule", NO_RULE, rf"^{RT_GLM}:3: expected a rule")
case("eval2000", "glm of a comment", row(GLM, 2, ";; A => B"), rf"{GLM}: no rule")
case("callhome", "text missing", row(C, 5, "2.00 2.50 A:"), Told(rf"{C}:5: "))
case("callhome", "colon missing", row(C, 5, "2 3 A two"), rf"{C}:5: expected")
case("callhome", "a line that goes on", row(C, 5, "2.00 2.50 A: two", "grade B: fine"), Goes(reworded=1))
case("fisher", "calldata of a line", lambda root: _write(root / "text/x_calldata.tbl", ["1," + "x" * 200_000]), "calldata")
case("fisher text", "end before start", row(F, 8, "2.50 2.00 A: two"), dropped(START, f"{F}:8"))


@pytest.mark.parametrize(("kind", "damage", "expected"), CASES)
def test_a_damage_is_named_or_nothing_is_lost(
    kind: str,
    damage: Damage,
    expected: Expected,
    valid: dict[str, tuple[Path, Outcome]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree, before = valid[kind]
    root = tmp_path / "tree"
    shutil.copytree(tree, root)
    damage(root)
    after, error = None, ""
    try:
        after = process(kind, root, tmp_path / "out")
    except RecipeError as raised:
        error = str(raised)
    if isinstance(expected, str):
        assert re.search(expected, error)
        return
    said = error or after.said + capsys.readouterr().err
    if isinstance(expected, Told):
        assert re.search(expected.says, said)
        return
    assert not error
    assert re.search(expected.says, said)
    found = {what: dict(counts - before.counts[what]) for what, counts in after.counts.items()}
    if found:
        assert found == {"dropped": expected.dropped, "left_out": expected.left_out, "mended": expected.mended}
    lost = sum(expected.dropped.values()) + sum(expected.left_out.values()) + expected.silent
    assert len(after.words) + lost == len(before.words) + expected.added
    assert len(before.words.keys() - after.words.keys()) == expected.gone
    assert sum(after.words[key] != words for key, words in before.words.items() if key in after.words) == expected.reworded


@pytest.mark.parametrize("name", ['it\'s "a" $HOME', "new; disc & (1) | *", "back\\slash `id`"])
def test_any_folder_name_reaches_the_shell_as_it_is(name: str, root: Path, tmp_path: Path) -> None:
    tree = tmp_path / name
    _swbd1(tree)
    process("swbd1", tree, tmp_path / "out")
    command = (tmp_path / "out" / "wav.scp").read_text().splitlines()[1].partition(" ")[2].rstrip("|")
    found = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    heard = subprocess.run(["bash", "-c", command], cwd=root, env=os.environ | {"PATH": found}, capture_output=True, check=True)
    assert len(heard.stdout) == 44 + 2 * 10 * RATE


def test_a_folder_name_that_would_break_a_line_is_named(tmp_path: Path) -> None:
    _swbd1(tmp_path / "two\nlines")
    with pytest.raises(RecipeError, match=r"two(\\n|\n)lines"):
        process("swbd1", tmp_path / "two\nlines", tmp_path / "out")


def test_a_person_in_two_calls_overlaps_nothing(valid: dict[str, tuple[Path, Outcome]]) -> None:
    assert not valid["persons"][1].counts["mended"]
