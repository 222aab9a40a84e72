"""Speak with the eSpeak NG engine, in a process of its own: one speaker's phrases, in order.

The engine carries state from call to call, so that only a fresh process with a fixed order gives the same samples again. It
is a tool that is run (GPL-3.0-or-later); nothing of it is part of this project.

Standard input: JSON ``{"voice", "rate", "pitch", "range", "phrases": [...]}``. The npz file named by the argument gets
``audio_<i>`` (int16 at 22,050 Hz) and ``events_<i>`` (rows of kind, sample, text position), names of phones in ``phones_<i>``.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile

import espeakng_loader
import numpy as np

RATE = 22_050
WORD, PHONEME = 1, 7
_SYNCHRONOUS, _PHONEME_EVENTS_NO_EXIT = 2, 0x8001
_UTF8 = 1
_PARAMETERS = {"rate": 1, "pitch": 3, "range": 4}


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("name", ctypes.c_char * 8),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


def main() -> None:
    request = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="es") as folder:
        # The engine keeps the path of its data in a short buffer: a link from a short folder stands for a long path.
        os.symlink(espeakng_loader.get_data_path(), f"{folder}/espeak-ng-data")
        engine = ctypes.CDLL(espeakng_loader.get_library_path())
        if engine.espeak_Initialize(_SYNCHRONOUS, 0, folder.encode(), _PHONEME_EVENTS_NO_EXIT) != RATE:
            sys.exit("error: the eSpeak NG engine does not start; reinstall the package espeakng-loader")
        if engine.espeak_SetVoiceByName(request["voice"].encode()) != 0:
            sys.exit(f"error: the eSpeak NG engine has no voice {request['voice']}")
        for name, number in _PARAMETERS.items():
            engine.espeak_SetParameter(number, int(request[name]), 0)
        audio: list[np.ndarray] = []
        events: list[tuple[int, int, int]] = []
        phones: list[str] = []

        def receive(samples, count, event) -> int:
            if samples and count:
                audio.append(np.ctypeslib.as_array(samples, shape=(count,)).copy())
            place = 0
            while event[place].type:
                if event[place].type in (WORD, PHONEME):
                    events.append((event[place].type, event[place].sample, event[place].text_position))
                    phones.append(event[place].name.decode(errors="replace") if event[place].type == PHONEME else "")
                place += 1
            return 0

        callback = _CALLBACK(receive)
        engine.espeak_SetSynthCallback(callback)
        result: dict[str, np.ndarray] = {}
        for number, phrase in enumerate(request["phrases"]):
            audio.clear(), events.clear(), phones.clear()
            text = phrase.encode()
            engine.espeak_Synth(text, len(text) + 1, 0, 1, 0, _UTF8, None, None)
            result[f"audio_{number}"] = np.concatenate(audio) if audio else np.zeros(0, np.int16)
            result[f"events_{number}"] = np.array(events, dtype=np.int64).reshape(-1, 3)
            result[f"phones_{number}"] = np.array(phones)
    np.savez(sys.argv[1], **result)


if __name__ == "__main__":
    main()
