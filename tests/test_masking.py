"""Which tokens are hidden for masked-language modelling, and what stands in their place."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import VOCABULARY, is_refused, tiny_model
from tf_adapters.kinds.masked_lm import MaskedLanguageModelling, Masking, masking_noise, most_hidden
from tf_adapters.text import WordPiece

ROWS, LENGTH = 400, 60
MASK = VOCABULARY.index("[MASK]")


@pytest.fixture(scope="module")
def wordpiece():
    return WordPiece(VOCABULARY, max_length=LENGTH)


@pytest.fixture(scope="module")
def inputs(wordpiece):
    """Rows with pieces of words, unknown tokens and padding."""
    random = np.random.default_rng(0)
    ids = random.integers(5, len(VOCABULARY), (ROWS, LENGTH))
    ids[random.random(ids.shape) < 0.05] = wordpiece.unk_id
    lengths = random.integers(3, LENGTH + 1, ROWS)
    ids[:, 0] = wordpiece.cls_id
    ids[np.arange(ROWS), lengths - 1] = wordpiece.sep_id
    mask = np.arange(LENGTH) < lengths[:, np.newaxis]
    ids[~mask] = wordpiece.pad_id
    return {
        "input_ids": tf.constant(ids, tf.int32),
        "attention_mask": tf.constant(mask, tf.int32),
        "token_type_ids": tf.zeros_like(ids),
    }


def masked(masking, inputs, seed=0):
    outputs, targets = masking(inputs, masking_noise([ROWS, LENGTH], [seed, 0]))
    return inputs["input_ids"].numpy(), outputs["input_ids"].numpy(), targets.numpy()


@pytest.mark.parametrize("rate, whole_words", [(0.15, False), (0.4, True)])
def test_shares_of_hidden_masked_random_and_kept_tokens_are_the_papers(wordpiece, inputs, rate, whole_words):
    ids, seen, targets = masked(Masking(wordpiece, rate=rate, whole_words=whole_words), inputs)
    special = np.isin(ids, [wordpiece.cls_id, wordpiece.sep_id, wordpiece.pad_id, wordpiece.unk_id])
    hidden = targets >= 0
    assert not np.any(hidden & special)
    np.testing.assert_array_equal(targets[hidden], ids[hidden])
    np.testing.assert_array_equal(seen[~hidden], ids[~hidden])
    # Words of several pieces are hidden together, so that their share spreads more.
    assert hidden.sum() / (~special).sum() == pytest.approx(rate, abs=0.02)
    assert (seen[hidden] == MASK).mean() == pytest.approx(0.8 + 0.1 / len(VOCABULARY), abs=0.03)
    assert (seen[hidden] == ids[hidden]).mean() == pytest.approx(0.1 + 0.1 / len(VOCABULARY), abs=0.03)
    others = seen[hidden & (seen != MASK) & (seen != ids)]
    assert others.min() < 5 and others.max() > len(VOCABULARY) - 5  # from all of the vocabulary


def test_whole_words_are_hidden_with_all_their_pieces(wordpiece, inputs):
    ids, _, targets = masked(Masking(wordpiece, whole_words=True), inputs)
    hidden = targets >= 0
    continues = np.array([token.startswith("##") for token in VOCABULARY])[ids]
    special = np.isin(ids, [wordpiece.cls_id, wordpiece.sep_id, wordpiece.pad_id, wordpiece.unk_id])
    inside = continues[:, 1:] & ~special[:, :-1]
    assert inside.sum() > 1000
    np.testing.assert_array_equal(hidden[:, 1:][inside], hidden[:, :-1][inside])
    # Without it, pieces of a word are hidden by themselves.
    hidden = masked(Masking(wordpiece), inputs)[2] >= 0
    assert np.any(hidden[:, 1:][inside] != hidden[:, :-1][inside])


def test_the_seed_decides_the_masks(wordpiece, inputs):
    masking = Masking(wordpiece)
    for one, other in zip(masked(masking, inputs, 3), masked(masking, inputs, 3)):
        np.testing.assert_array_equal(one, other)
    assert np.any(masked(masking, inputs, 3)[2] != masked(masking, inputs, 4)[2])


def test_a_rate_out_of_range_and_a_vocabulary_without_a_mask_are_refused(wordpiece):
    for rate in (0, 1, "much", True):
        is_refused("rate=.*0.15", Masking, wordpiece, rate=rate)
    is_refused(r"no token for what is masked", Masking, WordPiece([token for token in VOCABULARY if token != "[MASK]"]))


def long_words(wordpiece, rows, length):
    """Inputs with one long word a row, so that whole words are hidden beyond what is usual."""
    ids = np.full((rows, length), VOCABULARY.index("##a"))
    ids[:, 0], ids[:, 1], ids[:, -1] = wordpiece.cls_id, 10, wordpiece.sep_id
    ids = tf.constant(ids, tf.int32)
    return {"input_ids": ids, "attention_mask": tf.ones_like(ids), "token_type_ids": tf.zeros_like(ids)}


def test_a_compiled_run_has_a_place_for_every_hidden_token(wordpiece):
    """In training and in scoring, at a seed at which whole words are beyond it."""
    inputs, places = long_words(wordpiece, 4, 32), int(most_hidden(0.15, 4 * 32))
    kind, model = MaskedLanguageModelling(whole_words=True), tiny_model("masked-lm", num_hidden_layers=1)

    def hidden(targets):
        return np.count_nonzero(targets >= 0)

    def seeded(seed):
        return kind.batch(inputs, None, tf.constant([seed, 0], tf.int64), wordpiece)

    beyond = next(seed for seed in range(40) if hidden(seeded(seed)[1]) > places)
    trained = kind.trained(model, jit_compile=True)  # from now on its batches are bounded
    given, targets = seeded(beyond)
    assert 0 < hidden(targets) <= trained(given).shape[1]
    scorers = (
        kind.scorer(model, wordpiece, batch_size=4, lengths=(32, LENGTH), jit_compile=True),
        kind.scorer(model, wordpiece, batch_size=4),
    )
    bounded, plain = (hidden(scorer.masking(inputs, masking_noise([4, 32], [beyond, 0]))[1]) for scorer in scorers)
    assert bounded <= places < plain


def test_no_more_is_hidden_than_a_compiled_step_has_places_for(wordpiece):
    """XLA's shapes are fixed; a hidden token without a place would be read as a mask and never be learned from."""
    rows, length = 4, 64
    inputs = long_words(wordpiece, rows, length)
    places = int(most_hidden(0.15, rows * length))
    free, bounded = Masking(wordpiece, whole_words=True), Masking(wordpiece, whole_words=True, bounded=True)
    beyond = 0
    for seed in range(40):
        noise = masking_noise([rows, length], [seed, 0])
        expected, found = ((masking(inputs, noise)[1] >= 0).numpy()[:, 1:-1] for masking in (free, bounded))
        assert found.sum() <= places and not np.any(found & ~expected)
        assert np.array_equal(found.any(1), found.all(1))  # a word is hidden as a whole
        if expected.sum() > places:
            beyond += 1
            assert found.sum() > places - 2 * (length - 2)  # and no more words are left out than must be
        else:
            assert np.array_equal(found, expected)
    assert beyond > 1


@pytest.mark.parametrize("rate", [0.15, 0.9])
def test_a_batch_of_few_tokens_hides_what_it_would(wordpiece, rate):
    inputs = {"input_ids": tf.fill([1, 4], 10), "attention_mask": tf.ones([1, 4], tf.int32)}
    for seed in range(20):
        noise = masking_noise([1, 4], [seed, 1])
        free, bounded = (
            Masking(wordpiece, rate=rate, bounded=bounded)(inputs, noise)[1].numpy() for bounded in (False, True)
        )
        assert np.array_equal(free, bounded) or (free >= 0).sum() > int(most_hidden(rate, 4))
