"""`tf-adapters pretrain`."""

import functools
import pathlib
import shlex
import time
from typing import Optional

import typer

from tf_adapters.cli.command import option
from tf_adapters.cli.data import TextOptions
from tf_adapters.cli.directories import check_folder, going_on, next_directory
from tf_adapters.cli.options import AdapterOptions, DoorOptions, MaxLength, Model, PretrainOptions
from tf_adapters.cli.quiet import start, terminal
from tf_adapters.cli.report import show_pretraining, through_door_of
from tf_adapters.errors import InputError
from tf_adapters.paths import find_here
from tf_adapters.ranges import RANGES
from tf_adapters.recipes import PRETRAINING, get_recipe
from tf_adapters.saving.settings import SETTINGS_FILE
from tf_adapters.training.disk import HEAD_FOLDER, RESUME_FOLDER, clear, is_to_be_cleared
from tf_adapters.training.settings import check_door, choices

# Of everything, and of adapters.
FULL_RATE, ADAPTER_RATE = 1e-4, 1e-3
USUAL_STEPS = 2000

_adapter = functools.partial(option, panel="Adapter")
_run = functools.partial(option, panel="Run")


def pretrain(
    *,
    model: Model = "minilm",
    output: option(
        Optional[pathlib.Path], "Directory to write. Default for the embedded task: `pretrained/rotten-tomatoes`."
    ) = None,
    texts: TextOptions,
    max_length: MaxLength = None,
    recipe: _adapter(
        str,
        "Whose adapters: `default` or a paper's, as in `train`. `gururangan-2020` is of pretraining itself: the whole "
        "encoder, with that paper's passes, rate and batches.",
    ) = "default",
    trainable: _adapter(
        Optional[str],
        "`adapters`: they alone, the encoder and the head of masked words stay; `full`: everything. Default: "
        "`adapters`, or what a recipe of pretraining says.",
        values=("adapters", "full"),
    ) = None,
    adapter: AdapterOptions,
    steps: _run(Optional[int], f"Steps to train. Han et al. (2021) have up to 20,000. Default: {USUAL_STEPS}.") = None,
    epochs: _run(
        Optional[int], "Passes over the training texts, in place of `--steps`. Gururangan et al. (2020) have 100."
    ) = None,
    save_every: _run(
        Optional[int],
        "Measure perplexity, and keep the adapter in `step-N`, after so many steps. Default: a tenth of all; with "
        "`--epochs` a pass, or a tenth of them if there are tens.",
    ) = None,
    fit_head_steps: _run(
        Optional[int],
        "Steps that fit a new head of masked words on the frozen encoder first. Default: 500 where the checkpoint has "
        "no such head, otherwise 0.",
    ) = None,
    head_learning_rate: _run(float, "Peak learning rate of those.") = 1e-3,
    mask_rate: _run(float, "Share of the tokens that are hidden.", range=RANGES["rate"]) = 0.15,
    whole_words: _run(bool, "Hide all pieces of a word or none.", "--whole-words") = False,
    run: PretrainOptions,
    where: DoorOptions,
    resume: _run(bool, "Go on with an interrupted run, with the same options.", "--resume") = False,
    overwrite: _run(bool, "Replace what is in the output directory.", "--overwrite") = False,
):
    """Task-adaptive pretraining: guess hidden words of a task's texts, without labels.

    Of the task's training texts 15 % of the tokens are hidden, others in every step. Perplexity is measured on its
    validation texts. `train --from-pretrained-adapter` then learns the task from what this leaves.

    `tf-adapters pretrain --task tae/acl-arc --data-dir DATA --steps 2000 --output pretrained/acl-arc`

    `tf-adapters train --task tae/acl-arc --data-dir DATA --from-pretrained-adapter pretrained/acl-arc --output
    adapters/acl-arc`

    As in Gururangan et al. (2020), whose encoder trains: `tf-adapters pretrain --recipe gururangan-2020 --accumulate 16
    ...`

    The output directory gets the adapter of the least perplexity, those after every `--save-every` steps as `step-N`,
    `log.csv` and `perplexity.png`. A run that was interrupted goes on with the same command and `--resume`.

    Reference: Gururangan et al. 2020; with adapters He et al. 2021 and Han et al. 2021.
    """
    started = time.monotonic()
    texts.check()
    output = output or texts.usual_output("pretrained")
    recipe, given, door = get_recipe(recipe), run.given(), where.choose(run.fast)
    check_door(given, door)
    if recipe.name in PRETRAINING:
        trainable = trainable or recipe.trainable
        epochs = recipe.epochs if epochs is None and steps is None else epochs
    trainable = trainable or "adapters"
    steps, save_every = _steps(steps, save_every, epochs)
    adapter.refuse_without(trainable, fast=run.fast)
    given = {**_usual(recipe, trainable), **given}
    config = adapter.changed(recipe) if trainable == "adapters" else None
    _check_output(output, resume, overwrite)
    find_here(model)
    texts.peek()

    console = terminal()
    start(console, door=door, precision=run.precision)
    import tf_adapters
    from tf_adapters.cli.progress import TrainingProgress
    from tf_adapters.models.door import door_called
    from tf_adapters.models.state import state_of
    from tf_adapters.training.pretrain import check_pretraining

    data = texts.read(console, run.seed)
    if epochs is not None:
        of_epoch = -(-len(data.train) // given["batch_size"])
        # It saves after each pass, or ten times where there are tens.
        steps, save_every = epochs * of_epoch, of_epoch * (epochs // 10 if epochs % 10 == 0 else 1)
    door_called(door).ops.keras.utils.set_random_seed(run.seed)
    with console.status(f"Loading {model} ..."):
        whole = tf_adapters.load_backbone(model, head="masked-lm", door=door)
        tokenizer = tf_adapters.load_tokenizer(whole, max_length=max_length or recipe.max_length)
    check_pretraining(whole, tokenizer, config, fit_head_steps)
    if output.is_dir() and (not resume or is_to_be_cleared(output)):
        clear(output)
    console.print(
        f"Texts of {data.name}: {len(data.train):,} to train on, {len(data.validation):,} to measure perplexity on"
    )
    came = state_of(whole).pretrained_head
    if came and fit_head_steps is None:
        console.print(f"The head of masked words is {model}'s own.")
    elif fit_head_steps != 0:
        console.print(
            f"{model} {'has' if came else 'comes without'} a head of masked words; one is fitted first, on the frozen "
            "encoder."
        )
    result = tf_adapters.pretrain(
        whole, data, tokenizer, output=output, adapter=config, steps=steps, save_every=save_every,
        fit_head_steps=fit_head_steps,
        head_learning_rate=head_learning_rate, rate=mask_rate, whole_words=whole_words, fast=run.fast, resume=resume,
        reporter=TrainingProgress(console, None, "pretraining", period=save_every),
        head_reporter=TrainingProgress(console, None, "fitting the head"), **given,
    )  # fmt: skip
    if result.run.interrupted:
        console.print(f"Stopped; the state is saved. {going_on(overwrite)}")
        raise typer.Exit(130)
    show_pretraining(console, whole, output, result, time.monotonic() - started)
    next_options = {
        "--model": None if model == "minilm" else model, "--task": texts.task, "--data-dir": texts.data_dir,
        "--from-pretrained-adapter": output, "--output": next_directory(output),
    }  # fmt: skip
    words = [str(word) for pair in next_options.items() if pair[1] for word in pair]
    console.print("Next:" if texts.task else "Next, with your labelled files (--train, --validation):")
    console.print(f"  {shlex.join(['tf-adapters', 'train', *words])}{through_door_of(whole)}", soft_wrap=True)


def _usual(recipe, trainable):
    """What pretraining has where nothing else is asked for: dict of fields of `TrainingSettings`."""
    if trainable == "adapters" and recipe.trainable != "adapters":
        raise InputError(
            f"--recipe {recipe.name} trains no adapters: give --trainable full too, or a recipe of adapters."
        )
    if recipe.name in PRETRAINING:
        of_recipe = {name: getattr(recipe, name) for name, choice in choices().items() if choice.of_recipe}
        return {name: value for name, value in of_recipe.items() if name != "epochs"} | {"recipe": recipe.name}
    return {
        "learning_rate": FULL_RATE if trainable == "full" else ADAPTER_RATE, "batch_size": 32, "dropout": 0.0,
        "warmup_fraction": recipe.warmup_fraction, "recipe": recipe.name,
    }  # fmt: skip


def _steps(steps, save_every, epochs):
    """`(steps, save_every)` with what is usual where none is given, or Nones where epochs count."""
    if epochs is None:
        steps = USUAL_STEPS if steps is None else steps
        save_every = save_every if save_every is not None else steps // 10 if steps % 10 == 0 else steps
        if steps % save_every:
            raise InputError(f"--steps {steps} must be a multiple of --save-every {save_every}.")
        return steps, save_every
    for word, value in (("--steps", steps), ("--save-every", save_every)):
        if value is not None:
            raise InputError(f"--epochs {epochs} and {word} {value} exclude each other: leave one of them out.")
    return None, None


def _check_output(output, resume, overwrite):
    running = any((folder / RESUME_FOLDER).is_dir() for folder in (output, output / HEAD_FOLDER))
    # Killed between the head's run and the other.
    between = (output / HEAD_FOLDER / SETTINGS_FILE).exists() and not (output / SETTINGS_FILE).exists()
    about = {"marker": SETTINGS_FILE, "what": "what pretrain writes", "unfinished": running or between}
    check_folder(output, resume, overwrite, **about)
