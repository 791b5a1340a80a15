"""Houlsby, Pfeiffer, parallel adapters and LoRA at equal numbers of trained parameters, each at its best learning
rate."""

from benchmarks.result import RESULTS
from benchmarks.studies import study
from benchmarks.studies.training_runs import Runs
from benchmarks.table_parts import Table, listed, markdown, mean_and_sd, of_settings, origin, short_difference, titled
from tf_adapters.studies.numbers import at_edge, paired, spread

# Method -> the config's name, the field that is its size, and what else it has. LayerNorms train where the paper's do.
_PLAIN = {"activation": "relu", "placement": "ffn", "init_stddev": 0.03, "train_layer_norm": "none"}
METHODS = {
    "houlsby": ("AdapterConfig", "bottleneck_size", {"init_stddev": 0.03, "train_layer_norm": "all"}),
    "pfeiffer": ("AdapterConfig", "bottleneck_size", {**_PLAIN, "insertion": "after-norm"}),
    "parallel": ("AdapterConfig", "bottleneck_size", {**_PLAIN, "insertion": "parallel", "scaling": 4.0}),
    "lora": ("LoraConfig", "rank", {}),
}


def sized(method, parameters, encoder):
    """The method's config whose number of trained parameters, LayerNorms included, is nearest on an encoder, a dict of
    depth, hidden_size, intermediate_size, and layer_norm (what "none", "encoder" and "all" have)."""
    import tf_adapters

    name, field, others = METHODS[method]

    def config(size):
        return getattr(tf_adapters, name)(**{field: size}, **others)

    def distance(size):
        return abs(count(config(size), encoder) - parameters)

    size = 1
    while distance(2 * size) < distance(size):
        size *= 2
    return config(min(range(max(1, size // 2), 2 * size + 1), key=distance))


def count(config, encoder):
    """Trained parameters of a config beside the head."""
    own = config.parameters(encoder["depth"], encoder["hidden_size"], encoder["intermediate_size"])
    return own + encoder["layer_norm"][config.train_layer_norm]


def describe_encoder(source):
    """What `sized` needs of an encoder, a dict."""
    import transformers

    from tf_adapters.models.transformers.family import get_family
    from tf_adapters.models.transformers.loading import find_files

    config = transformers.AutoConfig.from_pretrained(find_files(source))
    family = get_family(config.model_type)
    inner, norms = family.intermediate_size(config), family.parameters(config)["layer_norm"]
    sizes = {"hidden_size": config.hidden_size, "intermediate_size": inner}
    return {"depth": family.depth(config), **sizes, "layer_norm": norms}


def summarise(chosen, rates):
    """Means, spreads and differences from houlsby by task and method, as a dict for JSON."""
    summary = {}
    for task, methods in chosen.items():
        first = methods["houlsby"][0]
        summary[task] = {"metric": first["metric"], "constant": first["constant"], "methods": {}}
        values = {method: [run["primary"] for run in runs] for method, runs in methods.items()}
        for method, runs in methods.items():
            study.check_finished(f"{method} on {task}", runs)
            others = None if method == "houlsby" else paired(values[method], values["houlsby"])
            summary[task]["methods"][method] = {
                **{name: runs[0][name] for name in ("learning_rate", "trained_parameters", "config")},
                "at_edge_of_grid": at_edge(runs[0]["learning_rate"], rates), **spread(values[method]),
                "minus houlsby": others,
            }  # fmt: skip
    return summary


def parse(arguments=None):
    parser = study.parser(
        f"{__doc__} The rate is chosen at the first seed, and the epoch always, on rows of the training split that "
        "nothing else uses; reported are the task's own validation rows.",
        "data_dir tasks model learning_rates rows validation_rows epochs batch_size max_length seeds precision output",
        tasks=["glue/sst2", "glue/cola"], output=RESULTS / "methods-minilm",
    )  # fmt: skip
    help = "trained beside the head; each method's size is the nearest to it"
    parser.add_argument("--parameters", type=int, default=310_000, help=help)
    return parser.parse_args(arguments)


def table(result):
    """Markdown of one result of methods.py: for each task a row for each method."""
    settings, rows = result["settings"], []
    for task, row in result["tasks"].items():
        for method, numbers in row["methods"].items():
            size = numbers["config"].get("bottleneck_size", numbers["config"].get("rank"))
            edge = " (edge of the grid)" if numbers["at_edge_of_grid"] else ""
            rows.append((
                f"{task}, {row['metric']}", f"{100 * row['constant']:.1f}", f"{method}, {size}",
                f"{numbers['trained_parameters']:,}", f"{numbers['learning_rate']:g}{edge}", mean_and_sd(numbers),
                short_difference(numbers["minus houlsby"], "-"),
            ))  # fmt: skip
    return markdown(
        f"Methods at equal numbers of trained parameters on {titled(settings)}",
        "| task | constant answer | method | trained | best rate | result, % | minus Houlsby, points (95 %) |",
        "lrlrrrl", rows,
        origin(result, f"{settings['rows']:,} rows, {settings['epochs']} epochs, {listed(result['seeds'])}"),
    )  # fmt: skip


TABLE = Table(table, of_settings("model", "rows", "epochs", "parameters"))


def main():
    options = parse()
    study.finish("methods", options.output, lambda: outcome(options), table)


def outcome(options):
    """Do the runs; a run and the summary."""
    settings = study.settings_of(options, "parameters rows validation_rows epochs batch_size max_length precision")
    trainer, encoder = study.Trainer(options, settings), {}

    def train(task, identity):
        encoder.update(encoder or describe_encoder(options.model))
        config = sized(identity["method"], options.parameters, encoder)
        run = trainer(task, identity, dropout=0.0, config=config)
        return {**run, "config": config.to_dict(), "primary": run["primary"] and run["primary"]["reported"]}

    arms = {method: [{"learning_rate": rate} for rate in options.learning_rates] for method in METHODS}
    chosen = study.conduct(Runs(options.output), settings, options.tasks, arms, options.seeds, train)
    about = {"seeds": options.seeds, "learning_rates": options.learning_rates, "settings": settings}
    return chosen[options.tasks[0]]["houlsby"][0], {**about, "tasks": summarise(chosen, options.learning_rates)}
