# From the discs to data directories.

if config["embedded"]:

    rule embedded_corpus:
        output:
            [directory(path) for corpus in config["corpora"].values() for path in corpus.values()],
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
        audio=config["corpora"]["swbd1"]["audio"],
        transcripts=config["corpora"]["swbd1"]["transcripts"],
    output:
        directory(f"{EXP}/data/swbd1"),
    log:
        f"{EXP}/log/data/swbd1.log",
    benchmark:
        f"{EXP}/benchmarks/data-swbd1.tsv"
    conda:
        "../environment.yaml"
    shell:
        "python -m recipes.swbd.swbd1 --audio {input.audio} --transcripts {input.transcripts} --out {output} 2> {log}"


rule eval2000:
    input:
        audio=config["corpora"]["eval2000"]["audio"],
        text=config["corpora"]["eval2000"]["text"],
    output:
        directory(f"{EXP}/data/eval2000"),
    log:
        f"{EXP}/log/data/eval2000.log",
    benchmark:
        f"{EXP}/benchmarks/data-eval2000.tsv"
    conda:
        "../environment.yaml"
    shell:
        "python -m recipes.swbd.eval2000 --audio {input.audio} --text {input.text} --out {output} 2> {log}"


rule subsets:
    input:
        data=f"{EXP}/data/swbd1",
        eval2000=f"{EXP}/data/eval2000",
    output:
        train=directory(f"{EXP}/data/train"),
        dev=directory(f"{EXP}/data/train_dev"),
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
        "--train {output.train} --dev {output.dev} 2> {log}"


rule data:
    input:
        expand(f"{EXP}/data/{{set}}", set=SETS),
