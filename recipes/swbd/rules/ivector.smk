# One i-vector a conversation side.


rule ivector_extractor:
    input:
        data=f"{EXP}/data/train",
        feats=f"{EXP}/feats/train/mfcc_cmvn.scp",
        model=f"{finished('tri3')}/model.pt",
    output:
        extractor=f"{EXP}/ivectors/extractor.pt",
    log:
        f"{EXP}/log/ivectors/extractor.log",
    benchmark:
        f"{EXP}/benchmarks/ivector-extractor.tsv"
    conda:
        "../environment.yaml"
    threads: config["jobs"]["gmm"]
    params:
        conf=recipe.as_json(config["ivector"]),
        launch=launch(config["jobs"]["gmm"]),
        feats=subpath(input.feats, parent=True),
    shell:
        "{params.launch} local.adaptation.ivector train --model {input.model} "
        "--data {input.data} --feats {params.feats} --conf {params.conf:q} --out {output.extractor} 2> {log}"


rule ivectors_of_job:
    input:
        data=f"{EXP}/data/{{set}}",
        feats=f"{EXP}/feats/{{set}}/mfcc_cmvn.scp",
        model=f"{finished('tri3')}/model.pt",
        extractor=f"{EXP}/ivectors/extractor.pt",
    output:
        multiext(f"{EXP}/ivectors/{{set}}/{{job}}/", "ivectors.scp", "ivectors.ark"),
    log:
        f"{EXP}/log/ivectors/{{set}}.{{job}}.log",
    benchmark:
        f"{EXP}/benchmarks/ivector-{{set}}.{{job}}.tsv"
    conda:
        "../environment.yaml"
    params:
        jobs=config["jobs"]["align"],
        feats=subpath(input.feats, parent=True),
        out=subpath(output[0], parent=True),
    shell:
        "python -m local.adaptation.ivector extract --extractor {input.extractor} --model {input.model} "
        "--data {input.data} --feats {params.feats} --job {wildcards.job} --jobs {params.jobs} --out {params.out} 2> {log}"


rule ivectors_of_set:
    input:
        data=f"{EXP}/data/{{set}}",
        parts=expand(f"{EXP}/ivectors/{{{{set}}}}/{{job}}/ivectors.scp", job=range(config["jobs"]["align"])),
    output:
        f"{EXP}/ivectors/{{set}}/ivectors.scp",
    log:
        f"{EXP}/log/ivectors/{{set}}.log",
    conda:
        "../environment.yaml"
    params:
        parts=lambda wildcards, input: [os.path.dirname(part) for part in input.parts],
        out=subpath(output[0], parent=True),
    shell:
        "python -m local.adaptation.ivector join --data {input.data} --parts {params.parts} --out {params.out} 2> {log}"


rule ivectors:
    input:
        expand(f"{EXP}/ivectors/{{set}}/ivectors.scp", set=SETS),
