"""The options that say what is trained, in place of parts of a recipe."""

import dataclasses
from typing import Annotated, Optional

import typer

from tf_adapters.cli.options import float_or_word, number_or_word
from tf_adapters.config import check_scaling, check_sharing
from tf_adapters.errors import InputError

# Those whose name is not the field of the config.
_FIELDS = {"adapter_size": "bottleneck_size", "adapter_dropout": "dropout"}


def _adapter(*names, panel="Adapter", **settings):
    return typer.Option(*names, rich_help_panel=panel, **settings)


@dataclasses.dataclass
class AdapterOptions:
    """The options by the names of the commands' parameters; None where one was not given."""

    adapter_size: Annotated[
        Optional[int], _adapter(help="Units of the bottleneck; 8 to 256 are usual. Without a recipe 64.")
    ] = None
    sharing: Annotated[
        Optional[str],
        _adapter(help="`none`: two adapters per block; `layer`: one; a number n: one for n consecutive blocks."),
    ] = None
    placement: Annotated[Optional[str], _adapter(help="After `attention`, after the `ffn`, or `both`.")] = None
    blocks: Annotated[
        Optional[str], _adapter(help="Blocks with adapters, from 0 at the bottom: `5-11` or `0,2,4`. Default: all.")
    ] = None
    activation: Annotated[Optional[str], _adapter(help="gelu, gelu_tanh, swish, relu, tanh, ...")] = None
    init_stddev: Annotated[
        Optional[float],
        _adapter(
            panel="Adapter in detail",
            help="Standard deviation of the adapters' initial weights. Without a recipe 0.03.",
        ),
    ] = None
    init_distribution: Annotated[
        Optional[str],
        _adapter(
            panel="Adapter in detail",
            help="Of the initial weights: `truncated` at two standard deviations, or `normal`.",
        ),
    ] = None
    adapter_dropout: Annotated[
        Optional[float], _adapter(panel="Adapter in detail", help="Dropout inside the adapters.")
    ] = None
    insertion: Annotated[
        Optional[str],
        _adapter(
            panel="Adapter in detail",
            help="`sequential`: behind the sub-layer; `after-norm`: Pfeiffer's, which uses the LayerNorm twice; "
            "`parallel` to it.",
        ),
    ] = None
    scaling: Annotated[
        Optional[str],
        _adapter(
            panel="Adapter in detail",
            help="Factor on the adapter's output, or `learned`. He et al. (2022) have 4 with `parallel`.",
        ),
    ] = None
    hidden_layers: Annotated[
        Optional[int], _adapter(panel="Adapter in detail", help="Layers between the adapter's two projections.")
    ] = None
    inner_norm: Annotated[
        Optional[str],
        _adapter(
            panel="Adapter in detail",
            help="A LayerNorm inside the adapter: `none`, `before` or `after` its projections.",
        ),
    ] = None
    interaction: Annotated[
        Optional[str],
        _adapter(panel="Adapter in detail", help="`add` the adapter's output to the sub-layer's, or `multiply` by it."),
    ] = None
    random_drop: Annotated[
        Optional[int],
        _adapter(
            panel="Adapter in detail",
            help="AdapterDrop: in each step leave out the adapters of the lowest 0 to this many blocks.",
        ),
    ] = None
    rank: Annotated[Optional[int], _adapter(panel="LoRA", help="Rank of LoRA's updates, with `--recipe hu-2022`.")] = (
        None
    )
    alpha: Annotated[Optional[float], _adapter(panel="LoRA", help="LoRA's scale times its rank.")] = None
    targets: Annotated[
        Optional[str],
        _adapter(panel="LoRA", help="What LoRA updates: of `query,key,value,attention_output,intermediate,output`."),
    ] = None
    train_layer_norm: Annotated[
        Optional[str],
        _adapter(help="LayerNorms that train with the adapters: `none`, of the `adapted` blocks, `encoder` or `all`."),
    ] = None

    def given(self):
        """The options that were given, a dict from their names to the words."""
        values = {f"--{field.name.replace('_', '-')}": getattr(self, field.name) for field in dataclasses.fields(self)}
        return {option: value for option, value in values.items() if value is not None}

    def check(self):
        """Raise InputError for a value that cannot be read, or is out of its range."""
        values = self._values()
        if "sharing" in values:
            check_sharing(values["sharing"])
        if "scaling" in values:
            check_scaling(values["scaling"])

    def changed(self, recipe):
        """The recipe's adapter with the values that were given."""
        from tf_adapters.recipes import changed_adapter

        recipe.check_labels()
        fields = {field.name for field in dataclasses.fields(recipe.adapter)}
        changes = {}
        for name, value in self._values().items():
            if _FIELDS.get(name, name) not in fields:
                option = f"--{name.replace('_', '-')}"
                raise InputError(
                    f"{option} is no setting of the method of --recipe {recipe.name} ({recipe.adapter.method}): leave "
                    "it out."
                )
            changes[_FIELDS.get(name, name)] = value
        return changed_adapter(recipe, changes)

    def _values(self):
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["sharing"], values["scaling"] = number_or_word(self.sharing), float_or_word(self.scaling)
        values["blocks"] = _parse_blocks(self.blocks)
        values["targets"] = None if self.targets is None else tuple(part.strip() for part in self.targets.split(","))
        return {name: value for name, value in values.items() if value is not None}


def _parse_blocks(text):
    if text is None:
        return None
    blocks = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        # Four digits: a typing error must not fill the memory.
        if not all(number.isdecimal() and len(number) <= 4 for number in (first, last)) or int(first) > int(last):
            raise InputError(f"--blocks {text} must look like 5-11 or 0,2,4.")
        blocks += range(int(first), int(last) + 1)
    return tuple(blocks)
