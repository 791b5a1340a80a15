"""Families whose transformers classes are BERT's under another name."""

from tf_adapters.models.transformers.fast import FastBlock, FastEncoder, FastIntermediate, FastSelfAttention, FastSite
from tf_adapters.models.transformers.site import AdapterBlock, AdapterSite


def block_classes(module, prefix):
    """What a `Family` needs of blocks, made of a module's classes as bert.py makes it of BERT's.

    Args:
        module: a `modeling_tf_...` module of transformers.
        prefix: str, which the names of its classes begin with, such as `"TFRoberta"`.

    Returns: dict of `block_class`, `fast_block_class` and `fast_encoder_class`.
    """

    def make(name, mixin, original, **attributes):
        bases = (mixin, getattr(module, prefix + original))
        doc = f"{prefix}{original} as bert.py's like."
        return type(prefix + name, bases, {"__module__": __name__, "__doc__": doc, **attributes})

    sites, fast_sites = (
        {"attention": make(f"{kind}SelfOutput", mixin, "SelfOutput"), "ffn": make(f"{kind}Output", mixin, "Output")}
        for kind, mixin in (("Adapter", AdapterSite), ("Fast", FastSite))
    )
    return {
        "block_class": make("AdapterLayer", AdapterBlock, "Layer", site_classes=sites),
        "fast_block_class": make(
            "FastLayer",
            FastBlock,
            "Layer",
            site_classes=fast_sites,
            self_attention_class=make("FastSelfAttention", FastSelfAttention, "SelfAttention"),
            intermediate_class=make("FastIntermediate", FastIntermediate, "Intermediate"),
        ),
        "fast_encoder_class": make("FastEncoder", FastEncoder, "Encoder"),
    }


def heads_of(prefix, **others):
    """Model classes of transformers for the heads that every family has.

    Args:
        prefix: as above.
        others: further heads and their classes; None leaves one out.
    """
    import transformers

    names = {
        "classification": "ForSequenceClassification", "token-classification": "ForTokenClassification",
        "question-answering": "ForQuestionAnswering", "multiple-choice": "ForMultipleChoice",
        "masked-lm": "ForMaskedLM",
        "none": "Model",
    }  # fmt: skip
    heads = {head: getattr(transformers, prefix + name) for head, name in names.items()}
    return {
        head: value
        for head, value in {**heads, **{k.replace("_", "-"): v for k, v in others.items()}}.items()
        if value is not None
    }
