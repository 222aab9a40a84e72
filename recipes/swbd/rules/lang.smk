# Dictionary, lexicon transducer, language model.


rule dictionary:
    input:
        transcripts=config["corpora"]["swbd1"]["transcripts"],
        train=f"{EXP}/data/train",
        texts=expand(f"{EXP}/data/{{corpus}}", corpus=LM_ONLY),
        plain=config["lm"]["texts"],
    output:
        directory(f"{EXP}/dict"),
    log:
        f"{EXP}/log/lang/dictionary.log",
    benchmark:
        f"{EXP}/benchmarks/lang-dictionary.tsv"
    conda:
        "../environment.yaml"
    params:
        texts=lambda wildcards, input: [f"{folder}/text" for folder in input.texts],
    shell:
        "python -m recipes.swbd.dictionary --dictionary {input.transcripts}/sw-ms98-dict.text "
        "--train {input.train}/text --text {params.texts} --plain {input.plain:q} --out {output} 2> {log}"


rule lexicon:
    input:
        f"{EXP}/dict",
    output:
        directory(f"{EXP}/lang_nosp"),
    log:
        f"{EXP}/log/lang/lexicon.log",
    benchmark:
        f"{EXP}/benchmarks/lang-lexicon.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json(config["lexicon"]),
    shell:
        "python -m local.lexicon --dict {input} --out {output} --conf {params.conf:q} 2> {log}"


rule lexicon_with_probabilities:
    input:
        dictionary=f"{EXP}/dict",
        counts=f"{finished('tri3')}/pronunciations.txt",
    output:
        directory(f"{EXP}/lang"),
    log:
        f"{EXP}/log/lang/probabilities.log",
    benchmark:
        f"{EXP}/benchmarks/lang-probabilities.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json(config["lexicon"]),
    shell:
        "python -m local.lexicon --dict {input.dictionary} --counts {input.counts} --out {output} --conf {params.conf:q} "
        "2> {log}"


rule language_model:
    input:
        train=f"{EXP}/data/train",
        corpora=expand(f"{EXP}/data/{{corpus}}", corpus=TRAINING),
        texts=expand(f"{EXP}/data/{{corpus}}", corpus=LM_ONLY),
        plain=config["lm"]["texts"],
        heldout=f"{EXP}/data/train_dev",
        lang=f"{EXP}/lang_nosp",
    output:
        arpa=f"{EXP}/lm/arpa.gz",
        mixture=f"{EXP}/lm/mixture.json",
    log:
        f"{EXP}/log/lang/lm.log",
    benchmark:
        f"{EXP}/benchmarks/lang-lm.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json({key: config["lm"][key] for key in ("order", "vocabulary")}),
        corpora=lambda wildcards, input: [f"{folder}/text" for folder in input.corpora],
        texts=lambda wildcards, input: [f"{folder}/text" for folder in input.texts],
    shell:
        "python -m local.lm estimate --train {input.train}/text --corpora {params.corpora} --text {params.texts} "
        "--plain {input.plain:q} --heldout {input.heldout}/text --lang {input.lang} --conf {params.conf:q} "
        "--out {output.arpa} 2> {log}"


rule grammar:
    input:
        arpa=FULL_ARPA,
        mixture=[] if config["lm"]["arpa"] else f"{EXP}/lm/mixture.json",
        lang=f"{EXP}/lang_nosp",
        heldout=expand(f"{EXP}/data/{{set}}", set=["train_dev", *TESTS]),
    output:
        grammar=f"{EXP}/lm/G.fst",
        stats=f"{EXP}/lm/stats.json",
        pruned=[] if config["lm"]["prune"] is None else f"{EXP}/lm/pruned.arpa.gz",
    log:
        f"{EXP}/log/lang/grammar.log",
    benchmark:
        f"{EXP}/benchmarks/lang-grammar.tsv"
    conda:
        "../environment.yaml"
    params:
        out=subpath(output.grammar, parent=True),
        mixture=options("mixture"),
        prune="" if config["lm"]["prune"] is None else f"--prune {config['lm']['prune']}",
        heldout=lambda wildcards, input: [f"{folder}/text" for folder in input.heldout],
    shell:
        "python -m local.lm grammar --arpa {input.arpa:q} --lang {input.lang} --heldout {params.heldout} {params.mixture} "
        "{params.prune} --out {params.out} 2> {log}"


rule lang:
    input:
        f"{EXP}/lang_nosp",
        f"{EXP}/lm/G.fst",
