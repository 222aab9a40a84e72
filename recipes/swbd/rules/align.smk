# GMM-HMM stages, the network's tree, and the alignments and transforms the network is trained on.


rule gmm_iterations:
    input:
        data=f"{EXP}/data/train",
        lang=lambda wildcards: lang_of(wildcards.stage),
        feats=f"{EXP}/feats/train/mfcc_cmvn.scp",
        before=lambda wildcards: f"{folder}/model.pt" if (folder := folder_before(wildcards)) else [],
    output:
        multiext(f"{EXP}/align/{{stage}}/{{until}}/", "model.pt", "log.jsonl", "alignment.json", "pronunciations.txt"),
    log:
        f"{EXP}/log/align/{{stage}}.{{until}}.log",
    benchmark:
        f"{EXP}/benchmarks/align-{{stage}}.{{until}}.tsv"
    conda:
        "../environment.yaml"
    threads: config["jobs"]["gmm"]
    params:
        kind=lambda wildcards: STAGES[wildcards.stage],
        conf=lambda wildcards: recipe.as_json(config["gmm"][wildcards.stage]),
        start=start_of,
        launch=launch(config["jobs"]["gmm"]),
        feats=subpath(input.feats, parent=True),
        out=subpath(output[0], parent=True),
    shell:
        "{params.launch} local.hmm.train {params.kind} {params.start} "
        "--until {wildcards.until} --data {input.data} --feats {params.feats} --lang {input.lang} "
        "--conf {params.conf:q} --out {params.out} 2> {log}"


rule gmm_page:
    input:
        lambda wildcards: multiext(f"{finished(wildcards.stage)}/", "model.pt", "log.jsonl", "alignment.json"),
    output:
        f"{EXP}/align/{{stage}}/page.html",
    log:
        f"{EXP}/log/align/{{stage}}.page.log",
    conda:
        "../environment.yaml"
    params:
        folder=subpath(input[0], parent=True),
    shell:
        "python -m local.hmm.page --folder {params.folder} --out {output} 2> {log}"


rule network_tree:
    input:
        data=f"{EXP}/data/train",
        lang=f"{EXP}/lang",
        feats=f"{EXP}/feats/train/mfcc_cmvn.scp",
        before=f"{finished('tri4')}/model.pt",
    output:
        f"{EXP}/align/network/model.pt",
    log:
        f"{EXP}/log/align/network.log",
    benchmark:
        f"{EXP}/benchmarks/align-network.tsv"
    conda:
        "../environment.yaml"
    threads: config["jobs"]["gmm"]
    params:
        conf=recipe.as_json(config["gmm"]["network"]),
        before=subpath(input.before, parent=True),
        launch=launch(config["jobs"]["gmm"]),
        feats=subpath(input.feats, parent=True),
        out=subpath(output[0], parent=True),
    shell:
        "{params.launch} local.hmm.train tree --before {params.before} "
        "--data {input.data} --feats {params.feats} --lang {input.lang} --conf {params.conf:q} --out {params.out} 2> {log}"


rule alignment_of_job:
    input:
        data=f"{EXP}/data/{{set}}",
        lang=f"{EXP}/lang",
        feats=f"{EXP}/feats/{{set}}/mfcc_cmvn.scp",
        model=f"{finished('tri4')}/model.pt",
        labels=f"{EXP}/align/network/model.pt",
    output:
        multiext(
            f"{EXP}/align/network/{{set}}/{{job}}/",
            "ali.scp",
            "ali.ark",
            "fmllr.scp",
            "fmllr.ark",
            "phones.ctm",
            "words.ctm",
            "stats.json",
        ),
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
        "python -m local.hmm.align --model {input.model} --labels {input.labels} --data {input.data} --feats {params.feats} "
        "--lang {input.lang} --job {wildcards.job} --jobs {params.jobs} --out {params.out} 2> {log}"


rule alignment:
    input:
        data=f"{EXP}/data/{{set}}",
        parts=expand(f"{EXP}/align/network/{{{{set}}}}/{{job}}/ali.scp", job=range(config["jobs"]["align"])),
    output:
        multiext(f"{EXP}/align/network/{{set}}/", "ali.scp", "fmllr.scp", "phones.ctm", "words.ctm", "stats.json"),
    log:
        f"{EXP}/log/align/{{set}}.log",
    conda:
        "../environment.yaml"
    params:
        parts=lambda wildcards, input: [os.path.dirname(part) for part in input.parts],
        out=subpath(output[0], parent=True),
    shell:
        "python -m local.hmm.align --join {params.parts} --data {input.data} --out {params.out} 2> {log}"


if KALDI["alignments"]:

    rule kaldi_alignment:
        input:
            data=f"{EXP}/data/{{set}}",
            folder=KALDI["alignments"],
        output:
            multiext(f"{EXP}/kaldi/{{set}}/", "ali.scp", "ali.ark", "stats.json"),
        log:
            f"{EXP}/log/kaldi/{{set}}.alignment.log",
        conda:
            "../environment.yaml"
        params:
            out=subpath(output[0], parent=True),
        shell:
            "python -m local.kaldi alignment --data {input.data} --folder {input.folder:q} --out {params.out} 2> {log}"


if KALDI["fmllr"]:

    rule kaldi_fmllr:
        input:
            data=f"{EXP}/data/{{set}}",
            folders=KALDI["fmllr"],
        output:
            f"{EXP}/kaldi/{{set}}/feats.scp",
        log:
            f"{EXP}/log/kaldi/{{set}}.fmllr.log",
        conda:
            "../environment.yaml"
        shell:
            "python -m local.kaldi features --data {input.data} --folders {input.folders:q} --out {output} 2> {log}"


rule align:
    input:
        expand(f"{EXP}/align/network/{{set}}/ali.scp", set=TRAINED),
        expand(f"{EXP}/align/{{stage}}/page.html", stage=STAGES),
