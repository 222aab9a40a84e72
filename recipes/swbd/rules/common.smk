# Which files belong to a stage, a graph, a system.


def stops_of(stage):
    """The iterations after which a stage's model is stored."""
    conf = config["gmm"][stage]
    return [*conf["stops"], conf["iterations"]]


def finished(stage):
    """The folder of a stage's last iteration."""
    return f"{EXP}/align/{stage}/{stops_of(stage)[-1]}"


def folder_before(wildcards):
    """The folder that some iterations start from: of this stage, or of the stage before; none for the first."""
    stops, stages = stops_of(wildcards.stage), list(STAGES)
    if place := stops.index(int(wildcards.until)):
        return f"{EXP}/align/{wildcards.stage}/{stops[place - 1]}"
    place = stages.index(wildcards.stage)
    return finished(stages[place - 1]) if place else ""


def start_of(wildcards, input):
    """How the training's command line names that folder."""
    folder = os.path.dirname(str(input.before))
    if not folder:
        return ""
    return f"--state {folder}" if os.path.basename(os.path.dirname(folder)) == wildcards.stage else f"--before {folder}"


def lang_of(model):
    """Before tri4, pronunciations and silence have no probabilities of their own."""
    return f"{EXP}/lang_nosp" if model in STAGES and model != "tri4" else f"{EXP}/lang"


def model_of(graph):
    """The model whose tree a graph is made with."""
    return f"{EXP}/align/network/model.pt" if graph == "network" else f"{finished(graph)}/model.pt"


def graph_of(system):
    """The graph that a system is decoded with."""
    return system if system in STAGES else "network"


def conf_of(wildcards):
    """How a system is decoded."""
    return recipe.as_json(config["decode"]["gmm" if wildcards.system in STAGES else "network"])


GRAPHS = list(dict.fromkeys(graph_of(system) for system in SYSTEMS))


def for_network(path):
    """An input that networks have and GMMs have not; none where ``path`` is none."""
    return lambda wildcards: [] if wildcards.system in STAGES or path is None else path.format(**wildcards)


def options(*names):
    """Inputs as options of a command line, those that there are."""
    return lambda wildcards, input: " ".join(f"--{name} {paths}" for name in names if (paths := getattr(input, name)))


def launch(processes):
    """What starts the processes of a job. As it depends on resources, another cluster is no reason to run a job again."""
    return lambda wildcards, resources: recipe.launched(processes, resources)
