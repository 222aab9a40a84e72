"""The report's tables say what the run's files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local import report
from local.cli import RecipeError
from local.files import write_text
from local.tables import html_table, plain


@pytest.fixture
def exp(tmp_path: Path) -> Path:
    score = {"N": 200, "corr": 180, "sub": 12, "del": 8, "ins": 4, "wer": 12.0, "low": 9.5, "high": 14.5}
    write_text(tmp_path / "score/tri1/eval2000/wer.json", json.dumps({"all": score, "sw": score, "sctk": None}))
    write_text(tmp_path / "decode/tri1/best.json", json.dumps({"acoustic_scale": 0.1, "insertion_penalty": -1.0}))
    history = [
        {"epoch": epoch, "samples": 300, "claimed": [100, 200], "heldout_loss": 2.0 / epoch, "heldout_accuracy": 0.25 * epoch,
         "consensus_distance": 0.5, "seconds": 1.5, "processor_seconds": 90.0, "gpus": 4}
        for epoch in (1, 2)
    ]  # fmt: skip
    write_text(tmp_path / "train/allreduce/history.jsonl", "".join(json.dumps(line) + "\n" for line in history))
    head = "s\th:m:s\tmax_rss\tcpu_time\n"
    write_text(tmp_path / "benchmarks/feats-train.0.tsv", head + "10.0\t0:00:10\t100\t9.0\n")
    write_text(tmp_path / "benchmarks/feats-train.1.tsv", head + "12.0\t0:00:12\t150\t-\n")
    write_text(tmp_path / "benchmarks/train-allreduce.tsv", head + "7200.0\t2:00:00\t80\t0.1\n")
    return tmp_path


def test_the_wer_table(exp: Path) -> None:
    rows = report.wer_table(exp, ["tri1"], ["eval2000"], ["mono", "tri1"])
    assert rows[1] == [
        *("tri1 (GMM)", "all", "12.0", "9.5 - 14.5", "200", "180", "12", "8", "4", "0.1", "-1", "not installed"),
    ]
    assert [row[1] for row in rows[1:]] == ["all", "SWB"]
    lines = plain(rows).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("tri1 (GMM)  all  12.0")


def test_the_decoding_table(exp: Path) -> None:
    speeds = {f"real_time_factor_of_{part}": n for part, n in (("likelihoods", 0.01), ("search", 0.1), ("lattices", 0.02))}
    stats = speeds | {"lattice_arcs_a_second": 51.4, "retried": 2, "partial": 1, "out_of_time": ["u"]}
    for test in ("train_dev", "eval2000"):
        write_text(exp / f"decode/tri1/{test}/all/stats.json", json.dumps(stats))
    rows = report.decoding_table(exp, ["tri1"], ["eval2000"])
    assert rows[1] == ["tri1", "train_dev", "0.010", "0.100", "0.020", "51", "2", "1", "1"]
    assert rows[2][:2] == ["tri1", "eval2000"]


def test_the_table_of_differences(exp: Path) -> None:
    pair = {
        "systems": ["tri4", "allreduce"],
        "label": "sw",
        "difference": 1.25,
        "low": 0.5,
        "high": 2.0,
        "matched_pairs": {"stretches": 80, "z": 2.5, "p": 0.0124},
        "mcnemar": {"p": 0.25},
    }
    write_text(exp / "score/significance.eval2000.json", json.dumps([pair, pair | {"label": "women"}]))
    rows = report.significance_table(exp, ["eval2000"])
    assert rows[1:] == [["tri4", "allreduce", "SWB", "+1.2", "+0.5 .. +2.0", "80", "+2.50", "0.012", "0.250"]]


def test_the_training_and_time_tables(exp: Path) -> None:
    assert report.training_table(exp, ["allreduce"])[1] == ["allreduce", "2", "1.000", "50.0", "200", "100 / 200", "0.5"]
    assert report.time_table(exp, ["allreduce"])[1:] == [
        ["feats", "2", "22.0", "0.003", "0", "150"],
        ["train", "1", "7200.0", "0.050", "0.00", "80"],  # 2 epochs of 90 processor seconds; 4 GPUs for 3 seconds
    ]


def test_a_missing_file_names_itself(exp: Path) -> None:
    with pytest.raises(RecipeError, match=r"allreduce/eval2000/wer\.json: no such file; run the stages before"):
        report.wer_table(exp, ["allreduce"], ["eval2000"], [])


def test_html_escapes_and_aligns() -> None:
    page = html_table([["name", "n"], ["<b>", "12.5"]])
    assert "&lt;b&gt;" in page
    assert "<td class=n>12.5</td>" in page
    assert "<th class=n>n</th>" in page
