# From the discs to data directories.

if config["embedded"]:

    rule embedded_corpus:
        output:
            [directory(path) for corpus in CORPORA.values() for path in (corpus or {}).values() if path],
        log:
            f"{EXP}/log/corpus.log",
        benchmark:
            f"{EXP}/benchmarks/corpus.tsv"
        conda:
            "../environment.yaml"
        threads: config["embedded"]["jobs"]
        params:
            conf=recipe.as_json(config["embedded"]),
            out=lambda wildcards, output: os.path.commonpath(output),
        shell:
            "python -m recipes.swbd.embedded --out {params.out} --conf {params.conf:q} 2>&1 | tee {log}"


rule swbd1:
    input:
        audio=CORPORA["swbd1"]["audio"],
        transcripts=CORPORA["swbd1"]["transcripts"],
        persons=CORPORA["swbd1"].get("persons") or [],
    output:
        directory(f"{EXP}/data/swbd1"),
    log:
        f"{EXP}/log/data/swbd1.log",
    benchmark:
        f"{EXP}/benchmarks/data-swbd1.tsv"
    conda:
        "../environment.yaml"
    params:
        persons=lambda wildcards, input: f"--persons {shlex.quote(str(input.persons))}" if input.persons else "",
    shell:
        "python -m recipes.swbd.swbd1 --audio {input.audio:q} --transcripts {input.transcripts:q} {params.persons} "
        "--out {output} 2> {log}"


if CORPORA.get("fisher"):

    rule fisher:
        input:
            transcripts=CORPORA["fisher"]["transcripts"],
            audio=CORPORA["fisher"].get("audio") or [],
        output:
            directory(f"{EXP}/data/fisher"),
        log:
            f"{EXP}/log/data/fisher.log",
        benchmark:
            f"{EXP}/benchmarks/data-fisher.tsv"
        conda:
            "../environment.yaml"
        shell:
            "python -m recipes.swbd.fisher --transcripts {input.transcripts:q} --audio {input.audio:q} --out {output} 2> {log}"


if CORPORA.get("callhome"):

    rule callhome:
        input:
            audio=CORPORA["callhome"]["audio"],
            transcripts=CORPORA["callhome"]["transcripts"],
        output:
            directory(f"{EXP}/data/callhome"),
        log:
            f"{EXP}/log/data/callhome.log",
        benchmark:
            f"{EXP}/benchmarks/data-callhome.tsv"
        conda:
            "../environment.yaml"
        shell:
            "python -m recipes.swbd.callhome --audio {input.audio:q} --transcripts {input.transcripts:q} --out {output} 2> {log}"


rule eval2000:
    input:
        audio=CORPORA["eval2000"]["audio"],
        text=CORPORA["eval2000"]["text"],
    output:
        directory(f"{EXP}/data/eval2000"),
    log:
        f"{EXP}/log/data/eval2000.log",
    benchmark:
        f"{EXP}/benchmarks/data-eval2000.tsv"
    conda:
        "../environment.yaml"
    shell:
        "python -m recipes.swbd.eval2000 --audio {input.audio:q} --text {input.text:q} --out {output} 2> {log}"


if CORPORA.get("rt03"):

    rule rt03:
        input:
            corpus=CORPORA["rt03"]["corpus"],
        output:
            directory(f"{EXP}/data/rt03"),
        log:
            f"{EXP}/log/data/rt03.log",
        benchmark:
            f"{EXP}/benchmarks/data-rt03.tsv"
        conda:
            "../environment.yaml"
        shell:
            "python -m recipes.swbd.rt03 --corpus {input.corpus:q} --out {output} 2> {log}"


rule subsets:
    input:
        data=expand(f"{EXP}/data/{{corpus}}", corpus=TRAINING),
        eval2000=ancient(f"{EXP}/data/eval2000"),  # its glm alone: a test set made anew is no reason to train anew
    output:
        train=directory(f"{EXP}/data/train"),
        dev=directory(f"{EXP}/data/train_dev"),
        heldout=directory(f"{EXP}/data/heldout"),
    log:
        f"{EXP}/log/data/subsets.log",
    benchmark:
        f"{EXP}/benchmarks/data-subsets.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json(config["data"]),
    shell:
        "python -m recipes.swbd.subsets --data {input.data} --glm {input.eval2000}/glm --conf {params.conf:q} "
        "--train {output.train} --dev {output.dev} --heldout {output.heldout} 2> {log}"


rule data:
    input:
        expand(f"{EXP}/data/{{set}}", set=[*SETS, *LM_ONLY]),
