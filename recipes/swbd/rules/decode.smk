# The decoding graph, the search, scales chosen on train_dev, and scores.


rule decoding_graph:
    input:
        lang=f"{EXP}/lang",
        grammar=f"{EXP}/lm/G.fst",
        model=f"{EXP}/align/tri/model.pt",
    output:
        graph=f"{EXP}/graph/tri/HCLG.fst",
        stats=f"{EXP}/graph/tri/HCLG.json",
    log:
        f"{EXP}/log/graph/tri.log",
    benchmark:
        f"{EXP}/benchmarks/graph-tri.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json(config["graph"]),
    shell:
        "python -m local.graph --lang {input.lang} --grammar {input.grammar} --model {input.model} "
        "--conf {params.conf:q} --out {output.graph} 2> {log}"


rule search_of_job:
    input:
        graph=f"{EXP}/graph/tri/HCLG.fst",
        lang=f"{EXP}/lang",
        gmm=f"{EXP}/align/tri/model.pt",
        data=f"{EXP}/data/{{set}}",
        feats=f"{EXP}/feats/{{set}}/fbank_cmvn.scp",
        network=lambda wildcards: [] if wildcards.system == "tri" else f"{EXP}/train/{wildcards.system}/final.pt",
        best=lambda wildcards: [] if wildcards.set == "train_dev" else f"{EXP}/decode/{wildcards.system}/best.json",
    output:
        directory(f"{EXP}/decode/{{system}}/{{set}}/{{job}}"),
    log:
        f"{EXP}/log/decode/{{system}}.{{set}}.{{job}}.log",
    benchmark:
        f"{EXP}/benchmarks/decode-{{system}}.{{set}}.{{job}}.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=lambda wildcards: recipe.as_json(config["decode"]["gmm" if wildcards.system == "tri" else "network"]),
        jobs=config["jobs"]["decode"],
        feats=subpath(input.feats, parent=True),
        network=lambda wildcards, input: f"--network {input.network}" if input.network else "",
        best=lambda wildcards, input: f"--best {input.best}" if input.best else "",
    shell:
        "python -m local.decode search --graph {input.graph} --lang {input.lang} --gmm {input.gmm} "
        "--data {input.data} --feats {params.feats} {params.network} {params.best} --conf {params.conf:q} "
        "--job {wildcards.job} --jobs {params.jobs} --out {output} 2> {log}"


rule hypotheses:
    input:
        data=f"{EXP}/data/{{set}}",
        parts=expand(f"{EXP}/decode/{{{{system}}}}/{{{{set}}}}/{{job}}", job=range(config["jobs"]["decode"])),
    output:
        directory(f"{EXP}/decode/{{system}}/{{set}}/all"),
    log:
        f"{EXP}/log/decode/{{system}}.{{set}}.log",
    conda:
        "../environment.yaml"
    shell:
        "python -m local.decode join --data {input.data} --parts {input.parts} --out {output} 2> {log}"


rule grid_scores:
    input:
        data=f"{EXP}/data/train_dev",
        hypotheses=f"{EXP}/decode/{{system}}/train_dev/all",
    output:
        f"{EXP}/score/{{system}}/grid.json",
    log:
        f"{EXP}/log/score/{{system}}.grid.log",
    benchmark:
        f"{EXP}/benchmarks/score-{{system}}.grid.tsv"
    conda:
        "../environment.yaml"
    shell:
        "python -m local.score.grid --stm {input.data}/stm --glm {input.data}/glm "
        "--ctm {input.hypotheses}/hyp.*.ctm --out {output} 2> {log}"


rule best_scales:
    input:
        f"{EXP}/score/{{system}}/grid.json",
    output:
        f"{EXP}/decode/{{system}}/best.json",
    log:
        f"{EXP}/log/decode/{{system}}.best.log",
    conda:
        "../environment.yaml"
    shell:
        "python -m local.decode tune --scores {input} --out {output} 2> {log}"


rule decode:
    input:
        expand(f"{EXP}/decode/{{system}}/{{test}}/all", system=SYSTEMS, test=TESTS),


rule scores:
    input:
        data=f"{EXP}/data/{{test}}",
        hypotheses=f"{EXP}/decode/{{system}}/{{test}}/all",
    output:
        directory(f"{EXP}/score/{{system}}/{{test}}"),
    log:
        f"{EXP}/log/score/{{system}}.{{test}}.log",
    benchmark:
        f"{EXP}/benchmarks/score-{{system}}.{{test}}.tsv"
    conda:
        "../environment.yaml"
    shell:
        "python -m local.score --stm {input.data}/stm --glm {input.data}/glm --ctm {input.hypotheses}/hyp.*.ctm "
        "--out {output} 2> {log}"


rule score:
    input:
        expand(f"{EXP}/score/{{system}}/{{test}}", system=SYSTEMS, test=TESTS),
