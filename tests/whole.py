"""Everything about a model that an operation may change, to tell whether one changed nothing."""

import numpy as np

from tests.conftest import tiny_inputs
from tf_adapters.models.origin import is_cast
from tf_adapters.models.state import state_of


def outputs(model, inputs=None):
    """What a model computes, a float32 array."""
    found = model(inputs or tiny_inputs())
    return np.asarray(
        found["logits" if "logits" in found else "start_logits" if "start_logits" in found else "last_hidden_state"]
    )


def picture(model):
    """A dict of all that is compared: bits of all weights, their order, layers, what acts and what trains, and what is
    computed."""
    state = state_of(model)
    state.digest(model)  # looking at it is no change
    adapters = {
        name: (adapter.config, list(adapter.layers), adapter.pretrained) for name, adapter in state.adapters.items()
    }
    return {
        "weights": [(id(variable), variable.name, variable.numpy().tobytes()) for variable in model.weights],
        "trains": [id(variable) for variable in model.trainable_variables],
        "layers": [
            (id(layer), type(layer), layer.trainable, layer.dtype_policy.name) for layer in model._flatten_layers()
        ],
        "adapters": adapters,
        "acts": (
            state.active,
            state.active_blocks,
            len(state.suspensions),
            state.acting.number.numpy(),
            state.acting.last,
            state.acting.head.numpy(),
            state.acting.traced_head,
        ),
        "head": (type(model), getattr(model, "num_labels", None), id(state.head)),
        "waiting": [
            (id(head.holder), [variable.numpy().tobytes() for variable in head.variables]) for head in state.heads
        ],
        "switches": {
            place: (
                site.switch.active_slot.numpy(),
                {name: gate.numpy() for name, gate in site.switch.gates.items()},
                list(site.adapters),
            )
            for place, site in state.sites.items()
        },
        "state": (
            state.trainable,
            state.fast,
            list(map(is_cast, model.weights)),
            list(map(id, state.newly_initialized)),
            state.source,
            state.digest(model),
        ),
        "kept": [
            [np.asarray(value).tobytes() for value in held.kept.get(owner, ())]
            for held in (*state.switched.values(), *state.heads)
            for owner in (state.plain, *state.adapters.values())
        ],
        "labels": (dict(model.config.id2label), dict(model.config.label2id)),
        "outputs": outputs(model).tobytes(),
    }


def assert_same(before, after):
    """Fail with the name of the first part that differs."""
    for name, value in before.items():
        assert value == after[name], f"{name} changed"
