# Dictionary, lexicon transducer, language model.


rule dictionary:
    input:
        transcripts=config["corpora"]["swbd1"]["transcripts"],
        data=f"{EXP}/data/train",
    output:
        directory(f"{EXP}/dict"),
    log:
        f"{EXP}/log/lang/dictionary.log",
    benchmark:
        f"{EXP}/benchmarks/lang-dictionary.tsv"
    conda:
        "../environment.yaml"
    shell:
        "python -m recipes.swbd.dictionary --dictionary {input.transcripts}/sw-ms98-dict.text "
        "--text {input.data}/text --out {output} 2> {log}"


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
        texts=expand(f"{EXP}/data/{{set}}", set=["train", *LM_ONLY]),
        lang=f"{EXP}/lang_nosp",
    output:
        f"{EXP}/lm/arpa.gz",
    log:
        f"{EXP}/log/lang/lm.log",
    benchmark:
        f"{EXP}/benchmarks/lang-lm.tsv"
    conda:
        "../environment.yaml"
    params:
        conf=recipe.as_json({"order": config["lm"]["order"]}),
        texts=lambda wildcards, input: [f"{folder}/text" for folder in input.texts],
    shell:
        "python -m local.lm estimate --text {params.texts} --lang {input.lang} --conf {params.conf:q} "
        "--out {output} 2> {log}"


rule grammar:
    input:
        arpa=config["lm"]["arpa"] or f"{EXP}/lm/arpa.gz",
        lang=f"{EXP}/lang_nosp",
        heldout=f"{EXP}/data/train_dev",
    output:
        grammar=f"{EXP}/lm/G.fst",
        stats=f"{EXP}/lm/stats.json",
    log:
        f"{EXP}/log/lang/grammar.log",
    benchmark:
        f"{EXP}/benchmarks/lang-grammar.tsv"
    conda:
        "../environment.yaml"
    params:
        out=subpath(output.grammar, parent=True),
    shell:
        "python -m local.lm grammar --arpa {input.arpa} --lang {input.lang} --heldout {input.heldout}/text "
        "--out {params.out} 2> {log}"


rule lang:
    input:
        f"{EXP}/lang_nosp",
        f"{EXP}/lm/G.fst",
