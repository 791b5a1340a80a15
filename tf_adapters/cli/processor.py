"""What the processor of this machine computes natively."""

import pathlib

_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


def precision_note(precision, cpu_info="/proc/cpuinfo"):
    """A sentence for the user where `precision` costs time in place of saving it, or None."""
    import tensorflow as tf

    if (
        precision != "mixed_bfloat16"
        or tf.config.list_physical_devices("GPU")
        or tf.config.list_physical_devices("TPU")
    ):
        return None
    try:
        words = set(pathlib.Path(cpu_info).read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return None  # not Linux: nothing is known
    if words & _BFLOAT16:
        return None
    return (
        "This processor has no bfloat16 instructions (avx512_bf16, amx_bf16): --precision mixed_bfloat16 saves memory "
        "here, and takes about twice as long as float32."
    )
