# The frame store, and the network trained from it with each strategy.


rule egs_of_set:
    input:
        data=f"{EXP}/data/{{set}}",
        feats=f"{EXP}/feats/{{set}}/fbank_cmvn.scp",
        alignment=multiext(f"{EXP}/{'kaldi' if KALDI['alignments'] else 'align/network'}/{{set}}/", "ali.scp", "stats.json"),
        transforms=f"{EXP}/align/network/{{set}}/fmllr.scp" if OWN_FMLLR else [],
        model=f"{EXP}/align/network/model.pt" if OWN_FMLLR else [],
        fmllr=f"{EXP}/kaldi/{{set}}/feats.scp" if KALDI_FMLLR else [],
        ivectors=f"{EXP}/ivectors/{{set}}/ivectors.scp" if "ivector" in config["inputs"] else [],
    output:
        directory(f"{EXP}/egs/{{set}}"),
    log:
        f"{EXP}/log/egs/{{set}}.log",
    benchmark:
        f"{EXP}/benchmarks/egs-{{set}}.tsv"
    conda:
        "../environment.yaml"
    params:
        feats=subpath(input.feats, parent=True),
        alignment=lambda wildcards, input: os.path.dirname(input.alignment[0]),
        parts=options("transforms", "model", "fmllr", "ivectors"),
    shell:
        "python -m local.am.egs --data {input.data} --feats {params.feats} --alignment {params.alignment} "
        "{params.parts} --out {output} 2> {log}"


rule egs:
    input:
        expand(f"{EXP}/egs/{{set}}", set=TRAINED),


# Checkpoints lie beside the outputs, undeclared: a run that was ended goes on from them.
rule train_network:
    input:
        egs=f"{EXP}/egs/train",
        heldout=f"{EXP}/egs/heldout",
    output:
        model=f"{EXP}/train/{{strategy}}/final.pt",
        history=f"{EXP}/train/{{strategy}}/history.jsonl",
    log:
        f"{EXP}/log/train/{{strategy}}.log",
    benchmark:
        f"{EXP}/benchmarks/train-{{strategy}}.tsv"
    conda:
        "../environment.yaml"
    threads: config["learners"] * config["train"]["threads"]
    params:
        am=recipe.as_json(config["am"]),
        conf=recipe.as_json(config["train"]),
        learners=config["learners"],  # another number is another model
        launch=launch(config["learners"]),
        out=subpath(output.model, parent=True),
    shell:
        "{params.launch} local.am.train --strategy {wildcards.strategy} "
        "--egs {input.egs} --heldout {input.heldout} --am {params.am:q} --conf {params.conf:q} "
        "--out {params.out} 2>&1 | tee {log}"


rule train:
    input:
        expand(f"{EXP}/train/{{strategy}}/final.pt", strategy=config["strategies"]),
