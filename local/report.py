"""What came of a run: RESULTS.md, report.html with pictures, and wer.txt.

    python -m local.report --exp exp/swbd/mini --stages exp/swbd/mini/align/tri1/15 ... --graphs tri4 network \\
        --systems tri4 allreduce adpsgd-random --strategies allreduce adpsgd-random --tests eval2000 --sets train eval2000 \\
        --synthetic --out exp/swbd/mini/report
"""

from __future__ import annotations

import argparse
import csv
import datetime
import itertools
import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from local.cli import RecipeError, run
from local.datadir import DataDir
from local.features import FRAME_SHIFT
from local.files import write_text
from local.hmm.pictures import utterance_pictures
from local.pages import COLOURS, INK, diagrams, page, picture
from local.plan import full_run, table_of
from local.tables import Table, html_table, markdown, plain

_NAMES = {"all": "all", "sw": "SWB", "en": "CH", "fsh": "Fisher"}


def _json(path: Path) -> Any:
    if not path.exists():
        raise RecipeError(f"{path}: no such file; run the stages before the report")
    return json.loads(path.read_text(encoding="utf-8"))


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _part(test: str, tests: Sequence[str], label: str) -> str:
    """What a row is of: a part of a test set, which is named where there are several."""
    return _NAMES[label] if len(tests) == 1 else f"{test} {_NAMES[label]}"


def wer_table(exp: Path, systems: Sequence[str], tests: Sequence[str], gmms: Sequence[str]) -> Table:
    """Error rates and counts of every system on every test set and its parts; ``gmms`` are marked as such."""
    rows: Table = [["system", "set", "WER %", "95 % interval", "N", "corr", "sub", "del", "ins", "scale", "penalty", "sclite"]]
    for system, test in itertools.product(systems, tests):
        scores, best = _json(exp / "score" / system / test / "wer.json"), _json(exp / "decode" / system / "best.json")
        for label in _NAMES:
            if label not in scores:
                continue
            s = scores[label]
            rows.append(
                [
                    f"{system} (GMM)" if system in gmms else system,
                    _part(test, tests, label),
                    f"{s['wer']:.1f}",
                    f"{s['low']:.1f} - {s['high']:.1f}",
                    *(str(s[key]) for key in ("N", "corr", "sub", "del", "ins")),
                    f"{best['acoustic_scale']:g}",
                    f"{best['insertion_penalty']:g}",
                    "same" if scores["sctk"] else "not installed",
                ]
            )
    return rows


def significance_table(exp: Path, tests: Sequence[str]) -> Table:
    """How sure it is that one system of a pair is better, on every test set and its parts."""
    head = ["first", "second", "set", "WER % less the second's", "95 % interval", "stretches", "z", "p", "McNemar's p"]
    rows: Table = [head]
    pairs = {test: _json(exp / "score" / f"significance.{test}.json") for test in tests}
    for test, label in itertools.product(tests, _NAMES):
        for pair in pairs[test]:
            if pair["label"] != label:
                continue
            matched = pair["matched_pairs"]
            rows.append(
                [
                    *pair["systems"],
                    _part(test, tests, label),
                    f"{pair['difference']:+.1f}",
                    f"{pair['low']:+.1f} .. {pair['high']:+.1f}",
                    str(matched["stretches"]),
                    f"{matched['z']:+.2f}",
                    f"{matched['p']:.3f}",
                    f"{pair['mcnemar']['p']:.3f}",
                ]
            )
    return rows


def decoding_table(exp: Path, systems: Sequence[str], tests: Sequence[str]) -> Table:
    """How fast each system was decoded, and what did not go as it should."""
    head = ["system", "set", "scores, x real time", "search", "lattices", "arcs/s", "retried", "partial", "out of time"]
    rows: Table = [head]
    for system, test in itertools.product(systems, ["train_dev", *tests]):
        s = _json(exp / "decode" / system / test / "all" / "stats.json")
        speeds = (f"{s[f'real_time_factor_of_{part}']:.3f}" for part in ("likelihoods", "search", "lattices"))
        failed = (str(s["retried"]), str(s["partial"]), str(len(s["out_of_time"])))
        rows.append([system, test, *speeds, f"{s['lattice_arcs_a_second']:.0f}", *failed])
    return rows


def data_table(exp: Path, sets: Sequence[str], absent: Sequence[str]) -> Table:
    """What every corpus and set holds, and what was not taken; corpora that the configuration leaves out."""
    counts = ("calls", "sides", "speakers", "utterances", "words", "hours")
    rows: Table = [["set", *counts, "not as it was"]]
    for name in sets:
        s = _json(exp / "data" / name / "stats.json")
        changes = [f"{n} {reason}" for key in ("dropped", "left_out", "mended") for reason, n in s.get(key, {}).items() if n]
        figures = (f"{s[key]:.2f}" if key == "hours" else str(s[key]) for key in counts if key in s)
        row = dict(zip((key for key in counts if key in s), figures, strict=True))
        rows.append([name, *(row.get(key, "-") for key in counts), "; ".join([*s.get("differs", []), *changes]) or "nothing"])
    return rows + [[name, *("-" for _ in counts), "not given in the configuration: left out"] for name in absent]


def alignment_table(stages: Sequence[Path]) -> Table:
    """How the training of every GMM stage ended, and what its newest alignment came to."""
    rows: Table = [["stage", "iterations", "Gaussians", "log-likelihood a frame", "utterances", "not aligned", "hours"]]
    for folder in stages:
        last, found = _json_lines(folder / "log.jsonl")[-1], _json(folder / "alignment.json")
        rows.append(
            [
                folder.parent.name,
                str(last["iteration"]),
                str(last["gaussians"]),
                f"{last['log_likelihood_per_frame']:.2f}",
                str(found["utterances"]),
                str(len(found["failed"])),
                f"{found['frames'] * FRAME_SHIFT / 3600:.2f}",
            ]
        )
    return rows


def model_table(exp: Path, graphs: Sequence[str]) -> Table:
    """Lexicon, language model, graphs."""
    lm = _json(exp / "lm" / "stats.json")
    oov = (exp / "dict" / "oov_words.txt").read_text(encoding="utf-8").split()
    added = [line.split("\t") for line in (exp / "dict" / "added_words.txt").read_text(encoding="utf-8").splitlines()]
    by_source = Counter({word: source.split()[0] for word, source, _ in added}.values())
    rows: Table = [["part", "figures"]]
    rows.append(
        ["words added to the dictionary", ", ".join(f"{n} {source}" for source, n in by_source.most_common()) or "none"]
    )
    rows.append(["words of the texts without a pronunciation", f"{len(oov) // 2}: {' '.join(oov[::2][:12]) or 'none'}"])
    for text in lm["mixture"]:
        figures = f"{text['words']} words, {text['unknown_share']:.2%} outside the vocabulary, weight {text['weight']:.3f}, "
        rows.append([f"text {text['text']}", f"{figures}{text['heldout_perplexity']:.4g} perplexity of its model on train_dev"])
    for model, figures in (("full model", lm["full"]), ("first pass", lm["first_pass"])):
        ngrams = " / ".join(map(str, figures["ngrams"]))
        rows.append([f"{model}: n-grams by order", f"{ngrams}; {figures['dropped_ngrams']} not in the lexicon"])
        for name, text in figures["texts"].items():
            unknown = f"{text['unknown_words']} of {text['words']} words unknown ({text['unknown_share']:.2%})"
            rows.append([f"{model}: perplexity on {name}", f"{text['perplexity']:.4g}; {unknown}"])
    rows.append(["states of G", str(lm["states"])])
    for name in graphs:
        graph = _json(exp / "graph" / name / "HCLG.json")
        rows += [[f"decoding graph, {name}: {key}", _short(value)] for key, value in graph.items()]
    return rows


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_short(item)} {key.replace('_', ' ')}" for key, item in value.items())
    if isinstance(value, list):
        return " / ".join(map(_short, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def training_table(exp: Path, strategies: Sequence[str]) -> Table:
    """How each strategy's training ended, and how fast it was."""
    rows: Table = [
        [
            "strategy",
            "epochs",
            "held-out loss",
            "frame accuracy %",
            "subsequences/s",
            "claimed by learner",
            "consensus distance",
        ]
    ]
    for name in strategies:
        history = _json_lines(exp / "train" / name / "history.jsonl")
        last = history[-1]
        speed = sum(line["samples"] for line in history) / sum(line["seconds"] for line in history)
        rows.append(
            [
                name,
                str(last["epoch"]),
                f"{last['heldout_loss']:.3f}",
                f"{100 * last['heldout_accuracy']:.1f}",
                f"{speed:.0f}",
                " / ".join(map(str, last["claimed"])),
                f"{last['consensus_distance']:.2g}",
            ]
        )
    return rows


def time_table(exp: Path, strategies: Sequence[str]) -> Table:
    """Wall-clock, processor and GPU hours and peak memory of every stage, summed over its jobs (Snakemake's benchmarks).

    Processor and GPU time of training is what the learners say: Snakemake does not see those of other nodes.
    """
    stages: dict[str, list[float]] = {}
    for path in sorted((exp / "benchmarks").glob("*.tsv")):
        with open(path, encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                sums = stages.setdefault(path.stem.split("-")[0], [0, 0.0, 0.0, 0.0])
                sums[0] += 1
                sums[1] += float(row["s"])
                sums[2] += _number(row["cpu_time"])
                sums[3] = max(sums[3], _number(row["max_rss"]))
    lines = [line for name in strategies for line in _json_lines(exp / "train" / name / "history.jsonl")]
    if "train" in stages:
        stages["train"][2] = sum(line["processor_seconds"] for line in lines)
    gpu_hours = sum(line["gpus"] * line["seconds"] for line in lines) / 3600
    order = ["corpus", "data", "lang", "feats", "align", "ivector", "egs", "train", "graph", "decode", "likelihoods", "score"]
    rows: Table = [["stage", "jobs", "seconds", "processor hours", "GPU hours", "peak MB"]]
    for stage in sorted(stages, key=lambda name: order.index(name) if name in order else len(order)):
        jobs, wall, cpu, memory = stages[stage]
        gpu = f"{gpu_hours:.2f}" if stage == "train" else "0"
        rows.append([stage, f"{jobs:.0f}", f"{wall:.1f}", f"{cpu / 3600:.3f}", gpu, f"{memory:.0f}"])
    return rows


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # a job too short to be measured
        return 0.0


def pictures(exp: Path, stages: Sequence[Path], systems: Sequence[str], strategies: Sequence[str], times: Table) -> list[str]:
    """Error rates, held-out loss and accuracy, GMM likelihoods, time by stage."""
    histories = {name: _json_lines(exp / "train" / name / "history.jsonl") for name in strategies}
    curves = {folder.parent.name: _json_lines(folder / "log.jsonl") for folder in stages}

    def rates(axes: Axes) -> None:
        labels = [label for label in ("sw", "en") if label in _json(exp / "score" / systems[0] / "eval2000" / "wer.json")]
        width = 0.8 / max(len(labels), 1)
        for place, label in enumerate(labels):
            scores = [_json(exp / "score" / system / "eval2000" / "wer.json")[label] for system in systems]
            at = [number + (place - (len(labels) - 1) / 2) * width for number in range(len(systems))]
            spread = [[s["wer"] - s["low"] for s in scores], [s["high"] - s["wer"] for s in scores]]
            axes.bar(at, [s["wer"] for s in scores], width * 0.92, color=COLOURS[place], label=_NAMES[label])
            axes.errorbar(at, [s["wer"] for s in scores], yerr=spread, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2)
        axes.set_xticks(range(len(systems)), systems)

    def history(key: str, factor: float = 1) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for (name, lines), colour in zip(histories.items(), COLOURS, strict=False):
                epochs = [line["epoch"] for line in lines]
                axes.plot(epochs, [factor * line[key] for line in lines], "o-", ms=3, lw=1.4, color=colour, label=name)

        return draw

    def likelihoods(axes: Axes) -> None:
        for (stage, lines), colour in zip(curves.items(), COLOURS, strict=False):
            values = [line["log_likelihood_per_frame"] for line in lines]
            axes.plot([line["iteration"] for line in lines], values, "o-", ms=3, lw=1.4, color=colour, label=stage)

    def tuning(axes: Axes) -> None:
        for system, colour in zip(systems, COLOURS, strict=False):
            best = _json(exp / "decode" / system / "best.json")
            rates: dict[float, float] = {}
            for name, counts in best["grid"].items():
                scale = float(name.split("_")[0])
                rate = 100 * (counts["sub"] + counts["del"] + counts["ins"]) / counts["N"]
                rates[scale] = min(rate, rates.get(scale, rate))
            axes.plot(*zip(*sorted(rates.items()), strict=True), "o-", ms=3, lw=1.4, color=colour, label=system)
            axes.plot(best["acoustic_scale"], best["wer"], "o", ms=7, mfc="none", color=colour)

    def stage_times(axes: Axes) -> None:
        rows = times[1:][::-1]
        axes.barh([row[0] for row in rows], [float(row[2]) for row in rows], color=COLOURS[0])

    return [
        picture(rates, "Word error rate, Hub5'00", "", "WER %, 95 % interval over sides"),
        picture(history("heldout_loss"), "Held-out loss of the averaged model", "epoch", "cross-entropy, nats a frame"),
        picture(history("heldout_accuracy", 100), "Frames classified right", "epoch", "% of held-out frames"),
        picture(likelihoods, "GMM training", "iteration", "log-likelihood a frame"),
        picture(tuning, "Scales tried on train_dev", "acoustic scale", "WER % at the best word penalty"),
        picture(stage_times, "Where the time went", "seconds, summed over jobs", ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exp", type=Path, required=True)
    parser.add_argument("--stages", type=Path, nargs="+", required=True, help="folders of the GMM stages' last iterations")
    parser.add_argument("--graphs", nargs="+", required=True)
    parser.add_argument("--systems", nargs="+", required=True)
    parser.add_argument("--strategies", nargs="+", required=True)
    parser.add_argument("--tests", nargs="+", required=True, help="sets that are scored")
    parser.add_argument("--sets", nargs="+", required=True, help="data directories")
    parser.add_argument("--absent", nargs="*", default=[], help="corpora that were not given")
    parser.add_argument("--synthetic", action="store_true", help="say that the speech was made by a machine")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    exp = arguments.exp
    names = [folder.parent.name for folder in arguments.stages]
    wer = wer_table(exp, arguments.systems, arguments.tests, names)
    times = time_table(exp, arguments.strategies)
    tables = {
        "Word error rates": wer,
        "Differences between systems": significance_table(exp, arguments.tests),
        "Decoding": decoding_table(exp, arguments.systems, arguments.tests),
        "Training": training_table(exp, arguments.strategies),
        "GMM-HMM stages": alignment_table(arguments.stages),
        "Data": data_table(exp, arguments.sets, arguments.absent),
        "Lexicon, language model, graph": model_table(exp, arguments.graphs),
        "Time by stage": times,
        "What 2,000 hours are expected to take": table_of(full_run()),
    }
    today, commit = datetime.date.today().isoformat(), _commit()
    about = f"{today}, commit {commit}, {platform.machine()} with {_cores()} cores, Python {platform.python_version()}"
    warning = "Synthetic speech: these numbers show that the recipe works. They say nothing of telephone speech."
    note = warning if arguments.synthetic else ""
    drawn = pictures(exp, arguments.stages, arguments.systems, arguments.strategies, times)
    sections = "".join(f"\n## {title}\n\n{markdown(table)}" for title, table in tables.items())
    results = f"# Results: {exp.name}\n\n{about}\n" + (f"\n**{note}**\n" if note else "") + sections
    rest = "".join(f"<h2>{title}</h2>{html_table(table)}" for title, table in list(tables.items())[1:])
    data = DataDir.read(exp / "data" / "train")
    utterances = utterance_pictures(exp / "align" / "network" / "train", data, exp / "feats" / "train")
    aligned = "".join(f"<div class=scroll>{drawn}</div>" for drawn in utterances)
    pages = " ".join(
        f"<a href='../align/{folder.parent.name}/page.html'>{folder.parent.name}</a>" for folder in arguments.stages
    )
    body = (
        f"<h2>Word error rates</h2>{html_table(wer)}<h2>Pictures</h2>{diagrams(drawn)}{rest}"
        f"<h2>Aligned utterances of median length</h2><div class=utterances>{aligned}</div><p>A page on each stage: {pages}</p>"
    )
    write_text(arguments.out / "RESULTS.md", results)
    write_text(arguments.out / "wer.txt", (f"{note}\n\n" if note else "") + plain(wer))
    write_text(arguments.out / "report.html", page(f"Results: {exp.name}", about, body, note))


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _commit() -> str:
    folder = Path(__file__).resolve().parent
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    run(main)
