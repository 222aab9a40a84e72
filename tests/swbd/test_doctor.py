"""The doctor tells the corpora apart, says what is missing, and writes a configuration that the recipe accepts."""

from __future__ import annotations

from pathlib import Path

import yaml
from trees import callhome, fisher, hub5, persons, rt03, sphere, switchboard

from local.workflow import check_corpora, complete
from recipes.swbd.doctor import configuration, look, report


def test_everything_under_one_folder(tmp_path: Path, root: Path) -> None:
    for make in (switchboard, hub5, fisher, callhome, rt03, persons):
        make(tmp_path)
    (tmp_path / "swb_ms98_transcriptions" / "sw-ms98-dict.text").write_text("a ey\n")
    findings = look([tmp_path])
    found = {(f.part.corpus, f.part.key, f.part.what.split(",")[0]): len(f.files) for f in findings}
    assert list(found.values()) == [2, 4, 1, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 1]
    corpora = configuration(findings)
    assert corpora["callhome"]["audio"] == str(tmp_path / "LDC97S42" / "data")
    assert corpora["fisher"]["audio"] == [
        str(tmp_path / "LDC2005S13/fe_03_p2_sph1/audio/058"),
        str(tmp_path / "fisher_eng_tr_sp_d1/audio/000"),
    ]
    assert corpora["swbd1"]["persons"] == str(tmp_path / "docs")
    check_corpora({"corpora": corpora})
    base = yaml.safe_load((root / "recipes/swbd/config.yaml").read_text())
    complete(base | {"corpora": corpora}, root, root / "recipes/swbd/schema.yaml")


def test_what_is_missing_twice_or_unreadable_is_said(tmp_path: Path) -> None:
    switchboard(tmp_path)
    sphere(tmp_path / "again" / "sw02001.sph", 1)
    (tmp_path / "swb_ms98_transcriptions/20/2005/sw2005A-ms98-a-trans.text").unlink()
    (tmp_path / "swb_ms98_transcriptions/20/2005/sw2005B-ms98-a-trans.text").unlink()
    lines = "\n".join(report(look([tmp_path])))
    assert "twice: " in lines
    assert "Hub5'00 audio, LDC2002S09                             0 of 40         missing" in lines
    assert "swbd1: 1 calls have audio but no transcripts: 2005" in lines
    (tmp_path / "LDC97S62/SWB1_D2/DATA/SW02005.SPH").write_bytes(b"nothing")
    assert "the first file cannot be used" in "\n".join(report(look([tmp_path / "LDC97S62"])))
