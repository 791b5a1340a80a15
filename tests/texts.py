"""Texts that trip tokenizers."""

import random

# Code points of random texts: ASCII twice, and scripts whose characters combine, vanish, multiply or are many.
BLOCKS = (
    (32, 127), (32, 127), (0, 0x250), (0x300, 0x370), (0x370, 0x600), (0x900, 0xE00), (0x1000, 0x10A0),
    (0x1E00, 0x2100), (0x2000, 0x2070), (0x3000, 0x3100), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0x1F600, 0x1F650),
)  # fmt: skip
# TensorFlow 2.19 writes U+FFFD in place of these; a table for `str.translate`.
NONCHARACTERS = dict.fromkeys(
    [*range(0xFDD0, 0xFDF0), *(plane + last for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))],
    0xFFFD,
)


def random_texts(count, seed, *, blocks=BLOCKS, parts=(), share=0.4, longest=30):
    """Texts of up to `longest` draws: a character of the blocks, or with the probability `share` one of the parts."""
    chooser = random.Random(seed)

    def draw():
        if parts and chooser.random() < share:
            return chooser.choice(parts)
        return chr(chooser.randrange(*chooser.choice(blocks)))

    return ["".join(draw() for _ in range(chooser.randint(0, longest))) for _ in range(count)]


def characters(step=1):
    """Every so-manieth Unicode scalar value, a str each."""
    return [chr(number) for number in range(0, 0x110000, step) if not 0xD800 <= number < 0xE000]
