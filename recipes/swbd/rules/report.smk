# What came of it all: RESULTS.md, report.html, wer.txt.


rule report:
    input:
        data=expand(f"{EXP}/data/{{set}}", set=[*TRAINING, *LM_ONLY, *SETS]),
        lm=f"{EXP}/lm/stats.json",
        dictionary=f"{EXP}/dict",
        graphs=expand(f"{EXP}/graph/{{graph}}/HCLG.json", graph=GRAPHS),
        curves=[f"{finished(stage)}/log.jsonl" for stage in STAGES],
        pages=[f"{EXP}/align/{stage}/page.html" for stage in STAGES],
        alignment=f"{EXP}/align/network/train/ali.scp",
        feats=f"{EXP}/feats/train/fbank_cmvn.scp",
        histories=expand(f"{EXP}/train/{{strategy}}/history.jsonl", strategy=config["strategies"]),
        decoded=expand(f"{EXP}/decode/{{system}}/{{set}}/all", system=SYSTEMS, set=["train_dev", *TESTS]),
        best=expand(f"{EXP}/decode/{{system}}/best.json", system=SYSTEMS),
        scores=expand(f"{EXP}/score/{{system}}/{{test}}", system=SYSTEMS, test=TESTS),
        significance=expand(f"{EXP}/score/significance.{{test}}.json", test=TESTS),
    output:
        html=f"{EXP}/report/report.html",
        results=f"{EXP}/report/RESULTS.md",
        wer=f"{EXP}/report/wer.txt",
    log:
        f"{EXP}/log/report.log",
    conda:
        "../environment.yaml"
    params:
        out=subpath(output.html, parent=True),
        exp=lambda wildcards, output: os.path.dirname(os.path.dirname(output.html)),
        stages=[finished(stage) for stage in STAGES],
        graphs=GRAPHS,
        systems=SYSTEMS,
        strategies=config["strategies"],
        tests=TESTS,
        absent=[name for name in ("fisher", "callhome", "rt03") if not CORPORA.get(name)],
        sets=lambda wildcards, input: [os.path.basename(folder) for folder in input.data],
        synthetic="--synthetic" if config["embedded"] else "",
    shell:
        "python -m local.report --exp {params.exp} --stages {params.stages} --graphs {params.graphs} "
        "--systems {params.systems} --strategies {params.strategies} "
        "--tests {params.tests} --sets {params.sets} --absent {params.absent} {params.synthetic} --out {params.out} 2> {log}"


# What the run is going to need; that the disk has room for it is checked as before any run.
rule plan:
    log:
        f"{EXP}/log/plan.log",
    localrule: True
    conda:
        "../environment.yaml"
    params:
        config=recipe.as_json(config),
    shell:
        "python -m local.plan --config {params.config:q} 2>&1 | tee {log}"
