# MFCC and log-mel features of every set, by speaker in jobs.

FEATURE_FILES = ["mfcc", "fbank", "mfcc_cmvn", "fbank_cmvn"]


rule features_of_job:
    input:
        f"{EXP}/data/{{set}}",
    output:
        multiext(f"{EXP}/feats/{{set}}/{{job}}/", "mfcc.scp", "mfcc.ark", "fbank.scp", "fbank.ark"),
    log:
        f"{EXP}/log/feats/{{set}}.{{job}}.log",
    benchmark:
        f"{EXP}/benchmarks/feats-{{set}}.{{job}}.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json(config["features"]),
        jobs=config["jobs"]["feats"],
        out=subpath(output[0], parent=True),
    shell:
        "python -m local.features compute --data {input} --job {wildcards.job} --jobs {params.jobs} "
        "--conf {params.conf:q} --out {params.out} 2> {log}"


rule features:
    input:
        data=f"{EXP}/data/{{set}}",
        parts=expand(f"{EXP}/feats/{{{{set}}}}/{{job}}/mfcc.scp", job=range(config["jobs"]["feats"])),
    output:
        [f"{EXP}/feats/{{set}}/{name}.scp" for name in FEATURE_FILES],
    log:
        f"{EXP}/log/feats/{{set}}.log",
    conda:
        "../environment.yaml"
    params:
        parts=lambda wildcards, input: [os.path.dirname(part) for part in input.parts],
        out=subpath(output[0], parent=True),
    shell:
        "python -m local.features join --data {input.data} --parts {params.parts} --out {params.out} 2> {log}"


rule feats:
    input:
        expand(f"{EXP}/feats/{{set}}/fbank_cmvn.scp", set=SETS),
