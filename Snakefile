# Switchboard from the LDC discs to the Hub5'00 WER table.
#
#   snakemake                          the embedded corpus (recipes/swbd/mini.yaml) on this machine
#   snakemake decode                   up to one stage
#   snakemake --configfile my.yaml     your corpora and knobs on top of recipes/swbd/config.yaml
#   snakemake --profile slurm all      the 2,000 hours on a cluster
import os
import shlex
import sys
from pathlib import Path

from snakemake.utils import min_version

min_version("9.0")

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT))

from local import cli, plan, workflow as recipe


configfile: ROOT / "recipes/swbd/config.yaml"


if not workflow.config_settings.configfiles:

    configfile: ROOT / "recipes/swbd/mini.yaml"


try:
    config = recipe.complete(config, ROOT, ROOT / "recipes/swbd/schema.yaml")
    if not config["embedded"]:  # which makes its own
        recipe.check_corpora(config)
except cli.RecipeError as error:
    raise WorkflowError(str(error))

EXP = f"{config['exp']}/{config['corpus']}"
CORPORA = config["corpora"]
TRAINING = ["swbd1"]  # corpora with audio
LM_ONLY = []  # corpora of text
for name in ("fisher", "callhome"):
    if CORPORA.get(name):
        (TRAINING if CORPORA[name].get("audio") else LM_ONLY).append(name)
TESTS = ["eval2000", "rt03"] if CORPORA.get("rt03") else ["eval2000"]
TRAINED = ["train", "heldout"]  # sets the network is trained and measured on
SETS = [*TRAINED, "train_dev", *TESTS]
KINDS = {"mono": "mono", "tri1": "tri", "tri2": "tri", "tri3": "lda", "tri4": "sat"}
STAGES = {stage: kind for stage, kind in KINDS.items() if config["gmm"][stage]}
KALDI = config["kaldi"]
OWN_FMLLR, KALDI_FMLLR = ("fmllr" in config["inputs"] and bool(KALDI["fmllr"]) == given for given in (False, True))
NETWORKS = [] if KALDI["alignments"] else config["strategies"]  # to be decoded: Kaldi's tree has no graph here
FULL_ARPA = config["lm"]["arpa"] or f"{EXP}/lm/arpa.gz"
RESCORE = (
    [] if config["lm"]["prune"] is None else [f"{EXP}/lm/pruned.arpa.gz", FULL_ARPA]
)  # the graph's model, and what then counts
SYSTEMS = [*config["gmm_systems"], *NETWORKS]  # GMM stages, and the network trained with each strategy

recipe.prepare_environment(ROOT, config["interconnect"])
recipe.ask_for_jobs_often()


wildcard_constraints:
    set="|".join(SETS),
    test="|".join(TESTS),
    job=r"\d+",
    stage="|".join(STAGES),
    until=r"\d+",
    graph="|".join([*STAGES, "network"]),
    system="|".join([*STAGES, *NETWORKS]),
    strategy="|".join(config["strategies"]),


onstart:
    recipe.lock(EXP)
    recipe.cancel_left_jobs(EXP)
    print(plan.check_disk(config, Path(EXP)), file=sys.stderr)


include: "recipes/swbd/rules/common.smk"
include: "recipes/swbd/rules/data.smk"
include: "recipes/swbd/rules/feats.smk"
include: "recipes/swbd/rules/align.smk"
include: "recipes/swbd/rules/lang.smk"
include: "recipes/swbd/rules/ivector.smk"
include: "recipes/swbd/rules/train.smk"
include: "recipes/swbd/rules/decode.smk"
include: "recipes/swbd/rules/report.smk"


rule all:
    default_target: True
    input:
        rules.likelihoods.input if KALDI["alignments"] else rules.report.output,
