# GMM-HMM stages, and the alignments the network is trained on.


rule mono:
    input:
        data=f"{EXP}/data/train",
        lang=f"{EXP}/lang",
        feats=f"{EXP}/feats/train/mfcc_cmvn.scp",
    output:
        model=f"{EXP}/align/mono/model.pt",
        curve=f"{EXP}/align/mono/log.jsonl",
    log:
        f"{EXP}/log/align/mono.log",
    benchmark:
        f"{EXP}/benchmarks/align-mono.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json(config["gmm"]["mono"]),
        feats=subpath(input.feats, parent=True),
        out=subpath(output.model, parent=True),
    shell:
        "python -m local.hmm.train mono --data {input.data} --feats {params.feats} --lang {input.lang} "
        "--conf {params.conf:q} --out {params.out} 2> {log}"


rule tri:
    input:
        data=f"{EXP}/data/train",
        lang=f"{EXP}/lang",
        feats=f"{EXP}/feats/train/mfcc_cmvn.scp",
        before=f"{EXP}/align/mono/model.pt",
    output:
        model=f"{EXP}/align/tri/model.pt",
        curve=f"{EXP}/align/tri/log.jsonl",
    log:
        f"{EXP}/log/align/tri.log",
    benchmark:
        f"{EXP}/benchmarks/align-tri.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json(config["gmm"]["tri"]),
        feats=subpath(input.feats, parent=True),
        out=subpath(output.model, parent=True),
    shell:
        "python -m local.hmm.train tri --model {input.before} --data {input.data} --feats {params.feats} "
        "--lang {input.lang} --conf {params.conf:q} --out {params.out} 2> {log}"


rule alignment_of_job:
    input:
        data=f"{EXP}/data/{{set}}",
        lang=f"{EXP}/lang",
        feats=f"{EXP}/feats/{{set}}/mfcc_cmvn.scp",
        model=f"{EXP}/align/tri/model.pt",
    output:
        multiext(f"{EXP}/align/tri/{{set}}/{{job}}/", "ali.scp", "ali.ark", "phones.ctm", "words.ctm", "stats.json"),
    log:
        f"{EXP}/log/align/{{set}}.{{job}}.log",
    benchmark:
        f"{EXP}/benchmarks/align-{{set}}.{{job}}.tsv"
    conda:
        "../environment.yaml"
    params:
        jobs=config["jobs"]["align"],
        feats=subpath(input.feats, parent=True),
        out=subpath(output[0], parent=True),
    shell:
        "python -m local.hmm.align --model {input.model} --data {input.data} --feats {params.feats} "
        "--lang {input.lang} --job {wildcards.job} --jobs {params.jobs} --out {params.out} 2> {log}"


rule alignment:
    input:
        data=f"{EXP}/data/{{set}}",
        parts=expand(f"{EXP}/align/tri/{{{{set}}}}/{{job}}/ali.scp", job=range(config["jobs"]["align"])),
    output:
        multiext(f"{EXP}/align/tri/{{set}}/", "ali.scp", "phones.ctm", "words.ctm", "stats.json"),
    log:
        f"{EXP}/log/align/{{set}}.log",
    conda:
        "../environment.yaml"
    params:
        parts=lambda wildcards, input: [os.path.dirname(part) for part in input.parts],
        out=subpath(output[0], parent=True),
    shell:
        "python -m local.hmm.align --join {params.parts} --data {input.data} --out {params.out} 2> {log}"


rule align:
    input:
        expand(f"{EXP}/align/tri/{{set}}/ali.scp", set=TRAINED),
