# The frame store, and the network trained from it with each strategy.


rule egs_of_set:
    input:
        data=f"{EXP}/data/{{set}}",
        feats=f"{EXP}/feats/{{set}}/fbank_cmvn.scp",
        alignment=f"{EXP}/align/tri/{{set}}/ali.scp",
        model=f"{EXP}/align/tri/model.pt",
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
    shell:
        "python -m local.am.egs --data {input.data} --feats {params.feats} --alignment {input.alignment} "
        "--model {input.model} --out {output} 2> {log}"


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
        learners=config["learners"],
        out=subpath(output.model, parent=True),
    shell:
        "torchrun --standalone --nproc-per-node {params.learners} -m local.am.train --strategy {wildcards.strategy} "
        "--egs {input.egs} --heldout {input.heldout} --am {params.am:q} --conf {params.conf:q} "
        "--out {params.out} 2>&1 | tee {log}"


rule train:
    input:
        expand(f"{EXP}/train/{{strategy}}/final.pt", strategy=config["strategies"]),
