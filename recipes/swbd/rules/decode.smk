# The decoding graph, the search for lattices, scales chosen on train_dev's, and scores.


rule decoding_graph:
    input:
        lang=lambda wildcards: lang_of(wildcards.graph),
        grammar=f"{EXP}/lm/G.fst",
        model=lambda wildcards: model_of(wildcards.graph),
    output:
        graph=f"{EXP}/graph/{{graph}}/HCLG.fst",
        stats=f"{EXP}/graph/{{graph}}/HCLG.json",
    log:
        f"{EXP}/log/graph/{{graph}}.log",
    benchmark:
        f"{EXP}/benchmarks/graph-{{graph}}.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json(config["graph"]),
    shell:
        "python -m local.graph --lang {input.lang} --grammar {input.grammar} --model {input.model} "
        "--conf {params.conf:q} --out {output.graph} 2> {log}"


rule search_of_job:
    input:
        graph=lambda wildcards: f"{EXP}/graph/{graph_of(wildcards.system)}/HCLG.fst",
        lang=lambda wildcards: lang_of(graph_of(wildcards.system)),
        model=lambda wildcards: model_of(graph_of(wildcards.system)),
        data=f"{EXP}/data/{{set}}",
        feats=f"{EXP}/feats/{{set}}/fbank_cmvn.scp",
        network=for_network(f"{EXP}/train/{{system}}/final.pt"),
        transforms=for_network(f"{EXP}/decode/tri4/{{set}}/all" if OWN_FMLLR else None),
        fmllr=for_network(f"{EXP}/kaldi/{{set}}/feats.scp" if KALDI_FMLLR else None),
        ivectors=for_network(f"{EXP}/ivectors/{{set}}/ivectors.scp" if "ivector" in config["inputs"] else None),
        rescore=RESCORE,
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
        conf=conf_of,
        jobs=config["jobs"]["decode"],
        feats=subpath(input.feats, parent=True),
        parts=options("network", "fmllr", "ivectors", "rescore", "best"),
        transforms=lambda wildcards, input: f"--transforms {input.transforms}/fmllr.scp" if input.transforms else "",
    shell:
        "python -m local.decode search --graph {input.graph} --lang {input.lang} --model {input.model} "
        "--data {input.data} --feats {params.feats} {params.parts} {params.transforms} "
        "--conf {params.conf:q} --job {wildcards.job} --jobs {params.jobs} --out {output} 2> {log}"


# For those who decode with Kaldi: its own tree and graph, where its alignments were taken.
rule likelihoods_of_job:
    input:
        network=f"{EXP}/train/{{strategy}}/final.pt",
        data=f"{EXP}/data/{{set}}",
        feats=f"{EXP}/feats/{{set}}/fbank_cmvn.scp",
        transforms=f"{EXP}/decode/tri4/{{set}}/all" if OWN_FMLLR else [],
        model=f"{EXP}/align/network/model.pt" if OWN_FMLLR else [],
        fmllr=f"{EXP}/kaldi/{{set}}/feats.scp" if KALDI_FMLLR else [],
        ivectors=f"{EXP}/ivectors/{{set}}/ivectors.scp" if "ivector" in config["inputs"] else [],
    output:
        scp=f"{EXP}/likelihoods/{{strategy}}/{{set}}/{{job}}/likelihoods.scp",
        ark=f"{EXP}/likelihoods/{{strategy}}/{{set}}/{{job}}/likelihoods.ark",
    log:
        f"{EXP}/log/likelihoods/{{strategy}}.{{set}}.{{job}}.log",
    benchmark:
        f"{EXP}/benchmarks/likelihoods-{{strategy}}.{{set}}.{{job}}.tsv"
    conda:
        "../environment.yaml"
    params:
        jobs=config["jobs"]["decode"],
        feats=subpath(input.feats, parent=True),
        parts=options("network", "model", "fmllr", "ivectors"),
        transforms=lambda wildcards, input: f"--transforms {input.transforms}/fmllr.scp" if input.transforms else "",
    shell:
        "python -m local.am.scorer --data {input.data} --feats {params.feats} {params.parts} {params.transforms} "
        "--job {wildcards.job} --jobs {params.jobs} --out {output.scp} 2> {log}"


rule likelihoods:
    input:
        expand(
            f"{EXP}/likelihoods/{{strategy}}/{{set}}/{{job}}/likelihoods.scp",
            strategy=config["strategies"],
            set=["train_dev", *TESTS],
            job=range(config["jobs"]["decode"]),
        ),


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


rule best_scales:
    input:
        data=f"{EXP}/data/train_dev",
        lattices=f"{EXP}/decode/{{system}}/train_dev/all",
        lang=lambda wildcards: lang_of(graph_of(wildcards.system)),
    output:
        f"{EXP}/decode/{{system}}/best.json",
    log:
        f"{EXP}/log/decode/{{system}}.best.log",
    benchmark:
        f"{EXP}/benchmarks/decode-{{system}}.best.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=conf_of,
    shell:
        "python -m local.tune --data {input.data} --lattices {input.lattices} --lang {input.lang} --conf {params.conf:q} "
        "--out {output} 2> {log}"


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
        "python -m local.score --stm {input.data}/stm --glm {input.data}/glm --ctm {input.hypotheses}/hyp.ctm "
        "--out {output} 2> {log}"


rule significance:
    input:
        expand(f"{EXP}/score/{{system}}/{{{{test}}}}", system=SYSTEMS),
    output:
        json=f"{EXP}/score/significance.{{test}}.json",
        txt=f"{EXP}/score/significance.{{test}}.txt",
    log:
        f"{EXP}/log/score/significance.{{test}}.log",
    conda:
        "../environment.yaml"
    params:
        systems=SYSTEMS,
    shell:
        "python -m local.score.significance --systems {params.systems} --scores {input} --out {output.json} 2> {log}"


rule score:
    input:
        expand(f"{EXP}/score/{{system}}/{{test}}", system=SYSTEMS, test=TESTS),
        expand(f"{EXP}/score/significance.{{test}}.txt", test=TESTS),
