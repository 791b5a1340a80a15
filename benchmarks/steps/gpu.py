"""Trains through the second door on JAX where there may be a GPU and no TensorFlow: time, memory and throughput of
Keras' own `fit`, adapters beside full fine-tuning, and accuracy on sentences that were cut into tokens before.

On another machine it takes this repository, JAX, Keras 3, KerasHub, NumPy, h5py and safetensors.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

from benchmarks.pairing import extremes
from benchmarks.result import at_least_1, installed_versions, log, make_parser, parse_arguments, provenance, show
from benchmarks.start import command

ARMS = ("adapters", "full")
PRECISIONS = ("float32", "mixed_bfloat16")
# Products a second that a device makes of dense bfloat16, by its maker's data sheet, in 1e12.
_PEAKS = {"H100": 989.0, "H200": 989.0, "A100": 312.0}
BERT_BASE = {"num_layers": 12, "hidden_dim": 768, "num_heads": 12, "intermediate_dim": 3072}
MINILM = {"num_layers": 6, "hidden_dim": 384, "num_heads": 12, "intermediate_dim": 1536}


def parse(arguments=None):
    parser = make_parser(
        __doc__, smoke="one small batch, one turn", data="folder with glue's files, for --write-tokens"
    )
    help = "minilm or bert-base, which are their shapes with random weights; or a checkpoint directory"
    parser.add_argument("--model", default="minilm", help=help)
    parser.add_argument("--batch-sizes", type=at_least_1, nargs="+", default=[32, 128, 512])
    parser.add_argument("--length", type=at_least_1, default=128, help="tokens of a row, none of them padding")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--steps", type=at_least_1, default=30, help="steps in a turn of fit")
    parser.add_argument("--rounds", type=at_least_1, default=5, help="turns; one more comes before, which compiles")
    parser.add_argument("--tokens", type=pathlib.Path, help="file of --write-tokens: train on it and tell the accuracy")
    parser.add_argument("--epochs", type=at_least_1, default=3, help="of --tokens")
    help = "do nothing but cut glue/sst2 into MiniLM's tokens, where TensorFlow is; needs --data-dir"
    parser.add_argument("--write-tokens", type=pathlib.Path, metavar="FILE", help=help)
    options = parse_arguments(parser, arguments, "gpu", batch_sizes=[2], length=8, steps=2, rounds=1, epochs=1)
    if options.write_tokens and not options.data_dir:
        parser.error("--write-tokens needs --data-dir, the folder that holds glue's files.")
    return options


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        print("\n" + json.dumps(one(json.loads(sys.argv[2]))))
        return
    options = parse()
    if options.write_tokens:
        write_tokens(options.write_tokens, options.data_dir)
        return
    shared = {name: getattr(options, name) for name in ("model", "length", "steps", "rounds", "epochs", "smoke")}
    shared["tokens"] = None if options.tokens is None else str(options.tokens)
    rows = []
    for size, precision, arm in itertools.product(options.batch_sizes, options.precisions, options.arms):
        log(f"{arm}, {precision}, {size} rows ...")
        rows.append(apart({**shared, "batch_size": size, "precision": precision, "arm": arm}))
    about = {name: rows[0][name] for name in ("device", "versions")}
    show({"kind": "gpu", **provenance(), **about, "settings": shared, "rows": rows}, options.output, describe)


def apart(settings):
    """What `one` measures, in a process of its own, whose highest memory is its own too."""
    words = command("steps.gpu", "--one", json.dumps(settings))
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{settings['arm']} ended with {done.returncode}:\n" + "\n".join(done.stderr.splitlines()[-12:]))
    return json.loads(done.stdout.splitlines()[-1])


def one(settings):
    """Train one arm; a dict for JSON."""
    import jax
    import keras

    import tf_adapters
    from tf_adapters.models.keras_hub.door import Called

    keras.config.set_dtype_policy(settings["precision"])
    keras.utils.set_random_seed(0)
    model, shape = build(settings["model"])
    if settings["arm"] == "adapters":
        config = tf_adapters.AdapterConfig(bottleneck_size=64, train_layer_norm="encoder")
        tf_adapters.add_adapters(model, config, seed=0)
    tf_adapters.set_trainable(model, settings["arm"])
    called = Called(model)
    rate = 1e-3 if settings["arm"] == "adapters" else 3e-5
    called.compile(
        optimizer=keras.optimizers.Adam(rate), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"], jit_compile=True,
    )  # fmt: skip
    size, device = settings["batch_size"], jax.devices()[0]
    found = {name: settings[name] for name in ("arm", "precision", "batch_size")}
    found |= {
        "device": device.device_kind,
        "versions": installed_versions("jax", "keras", "keras-hub", "numpy", "tf_adapters"),
        "trained_parameters": int(sum(np.prod(weight.shape) for weight in model.trainable_variables)),
    }
    if settings["tokens"] is None:
        ids = np.random.default_rng(0).integers(1000, 20_000, (size * settings["steps"], settings["length"]))
        labels = ids[:, 1] % 2
    else:
        with np.load(settings["tokens"]) as arrays:
            arrays = {name: arrays[name] for name in arrays.files}
        ids, labels = (arrays[name][: 2 * size if settings["smoke"] else None] for name in ("train", "train_labels"))
    steps, seconds = len(labels) // size, []
    rows = steps * size  # full batches alone: another shape is compiled anew
    data, labels = inputs_of(ids[:rows]), labels[:rows]
    for _ in range(settings["epochs"] if settings["tokens"] else settings["rounds"] + 1):
        started = time.perf_counter()
        called.fit(data, labels, batch_size=size, verbose=0, shuffle=settings["tokens"] is not None)
        seconds.append(time.perf_counter() - started)
    times = extremes([1e3 * each / steps for each in (seconds[1:] or seconds)])
    found |= {
        "first_turn_s": seconds[0], "step_ms": times, "examples_per_second": 1e3 * size / times["median"],
        "tflops": step_flops(size, ids.shape[1], settings["arm"], **shape) / times["median"] / 1e9,
        "peak_mib": ((device.memory_stats() or {}).get("peak_bytes_in_use") or 0) / 2**20 or None,
    }  # fmt: skip
    if settings["tokens"] is not None:
        count = size if settings["smoke"] else len(arrays["validation"]) // size * size or len(arrays["validation"])
        answers = called.predict(inputs_of(arrays["validation"]), batch_size=count, verbose=0).argmax(-1)
        found["accuracy"] = float((answers == arrays["validation_labels"]).mean())
    return found


def build(name):
    """A KerasHub classifier of two labels, and its encoder's sizes."""
    import keras_hub

    import tf_adapters

    if name not in ("minilm", "bert-base"):
        model = tf_adapters.load_backbone(name, door="keras-hub")
        backbone = model.backbone
        return model, {each: getattr(backbone, each) for each in MINILM}
    shape = BERT_BASE if name == "bert-base" else MINILM
    backbone = keras_hub.models.BertBackbone(vocabulary_size=30_522, max_sequence_length=512, **shape)
    return keras_hub.models.BertTextClassifier(backbone, num_classes=2), shape


def step_flops(batch, length, arm, *, num_layers, hidden_dim, num_heads, intermediate_dim):
    """Operations of a step's matrix products: twice the multiplications of the forward pass and, backwards, of the
    inputs' gradients, and for full fine-tuning of the kernels'. Those of the adapters themselves are left out."""
    tokens = batch * length
    kernels = num_layers * (4 * hidden_dim**2 + 2 * hidden_dim * intermediate_dim)
    scores = num_layers * 2 * length * hidden_dim
    passes = 2 if arm == "adapters" else 3
    # The products of attention have no kernel: backwards there are two for each, whatever trains.
    return 2 * tokens * (passes * kernels + 3 * scores)


def inputs_of(ids):
    """KerasHub's inputs of token ids, 0 where there is no token."""
    ids = ids.astype("int32")
    return {"token_ids": ids, "padding_mask": (ids > 0).astype("int32"), "segment_ids": np.zeros_like(ids)}


def write_tokens(path, data_dir):
    """Write SST-2 as MiniLM's tokens, rows of 64."""
    import tf_adapters

    model = tf_adapters.load_backbone("minilm", head="none")
    tokenizer = tf_adapters.load_tokenizer(model, max_length=64)
    task, arrays = tf_adapters.load_task("glue/sst2", data_dir=data_dir), {}
    for split in ("train", "validation"):
        rows = getattr(task, split)
        ids = tokenizer.encode(rows.text)["input_ids"]
        arrays[split] = ids.to_tensor(0, (None, 64)).numpy().astype("uint16")
        arrays[f"{split}_labels"] = np.asarray(rows.labels, "int32")
    np.savez_compressed(path, **arrays)
    log(f"{path}: {len(arrays['train']):,} and {len(arrays['validation']):,} rows, {path.stat().st_size / 1e6:.1f} MB")


def describe(result):
    """The result as lines of text."""
    peak = next((value for name, value in _PEAKS.items() if name in result["device"]), None)
    lines = [
        f"{result['device']}, {result['settings']['model']}",
        f"{'arm':10}{'precision':16}{'rows':>6}{'ms/step':>10}{'ex/s':>10}{'TFLOP/s':>9}{'of peak':>9}{'MiB':>9}"
        f"{'accuracy':>10}",
    ]
    for row in result["rows"]:
        share = f"{row['tflops'] / peak:.1%}" if peak and row["precision"] == "mixed_bfloat16" else "-"
        memory = "-" if row["peak_mib"] is None else f"{row['peak_mib']:,.0f}"
        accuracy = f"{row['accuracy']:.4f}" if "accuracy" in row else "-"
        lines.append(
            f"{row['arm']:10}{row['precision']:16}{row['batch_size']:6}{row['step_ms']['median']:10.2f}"
            f"{row['examples_per_second']:10.0f}{row['tflops']:9.2f}{share:>9}{memory:>9}{accuracy:>10}"
        )
    return "\n".join(lines)
