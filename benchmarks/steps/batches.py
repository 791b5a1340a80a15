"""Writes the checkpoint's place and the token ids that every arm of step.py gets. A process of its own.

t128   batches of rows of 128 tokens: the sentences one after the other, cut every 126 tokens, with [CLS] and [SEP]
short  batches of sentences as they are, sorted by length over all batches, each padded to its own longest sentence
"""

import argparse
import hashlib
import json
import pathlib

import numpy as np

BATCH_COUNTS = {"t128": 4, "short": 8}
ROW_LENGTH = 128


def pack(rows, count, length, cls_id, sep_id):
    """Lists of ids, one after the other, cut into full rows with the special tokens: an int32 array `(count, length)`,
    or None if the text is too short."""
    width = length - 2
    ids = [token for row in rows for token in row][: count * width]
    if len(ids) < count * width:
        return None
    packed = np.empty((count, length), np.int32)
    packed[:, 0], packed[:, -1] = cls_id, sep_id
    packed[:, 1:-1] = np.reshape(ids, (count, width))
    return packed


def sort_into_batches(rows, labels, batch_size, pad_id):
    """Rows of ids, a multiple of `batch_size`, sorted by length, cut into batches, each padded to its longest: a list
    of `(input_ids, attention_mask, labels)`."""
    order = np.argsort([len(row) for row in rows], kind="stable")
    batches = []
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        length = max(len(rows[index]) for index in chosen)
        ids = np.full((batch_size, length), pad_id, np.int32)
        mask = np.zeros((batch_size, length), np.int32)
        for place, index in enumerate(chosen):
            ids[place, : len(rows[index])] = rows[index]
            mask[place, : len(rows[index])] = 1
        batches.append((ids, mask, np.asarray([labels[index] for index in chosen], np.int32)))
    return batches


#: BERT-base's configuration.
BERT = {
    "architectures": ["BertModel"], "model_type": "bert", "vocab_size": 30_522, "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512,
    "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12, "pad_token_id": 0,
}  # fmt: skip


def write_random_bert(directory, *, seed=0, **other):
    """Write a checkpoint with `BERT`, or other values of it, and random weights; for speed, not for quality."""
    from safetensors.numpy import save_file

    config, random = {**BERT, **other}, np.random.default_rng(seed)
    size, inner = config["hidden_size"], config["intermediate_size"]
    blocks = [f"encoder.layer.{number}" for number in range(config["num_hidden_layers"])]
    square = [f"{block}.attention.{name}" for block in blocks for name in ("self.query", "self.key", "self.value")]
    square += [*(f"{block}.attention.output.dense" for block in blocks), "pooler.dense"]
    dense = dict.fromkeys(square, (size, size)) | {f"{block}.output.dense": (size, inner) for block in blocks}
    dense |= {f"{block}.intermediate.dense": (inner, size) for block in blocks}
    norms = [f"{block}.{part}.LayerNorm" for block in blocks for part in ("attention.output", "output")]
    names = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    drawn = dense | {f"embeddings.{name}_embeddings": (config[count], size) for name, count in names.items()}
    scale = np.float32(config["initializer_range"])
    arrays = {f"{name}.weight": random.standard_normal(shape, np.float32) * scale for name, shape in drawn.items()}
    arrays |= {f"{name}.bias": np.zeros(shape[0], np.float32) for name, shape in dense.items()}
    for name in (*norms, "embeddings.LayerNorm"):
        arrays |= {f"{name}.weight": np.ones(size, np.float32), f"{name}.bias": np.zeros(size, np.float32)}
    directory.mkdir(parents=True)
    save_file(arrays, str(directory / "model.safetensors"), metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config))


def main():
    parser = argparse.ArgumentParser(description="Write the batches of step.py, which calls this.")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="where batches.npz and batches.json go")
    parser.add_argument("--model", required=True)
    parser.add_argument("--batches", choices=sorted(BATCH_COUNTS), required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    import tensorflow as tf

    import tf_adapters
    from tf_adapters.models.transformers.loading import find_files
    from tf_adapters.tasks.registry import load_split

    random_weights = arguments.model == "bert-base"
    # MiniLM's vocabulary is bert-base-uncased's.
    directory = find_files("minilm" if random_weights else arguments.model)
    task = "glue/sst2" if arguments.data_dir else "rotten-tomatoes"
    rows = load_split(task, arguments.split, data_dir=arguments.data_dir).rows
    wordpiece = tf_adapters.text.WordPiece.from_directory(directory, max_length=ROW_LENGTH)
    if random_weights:
        directory = arguments.folder / "bert-base"
        write_random_bert(directory, vocab_size=len(wordpiece.vocabulary), seed=arguments.seed)
        (directory / "vocab.txt").write_text("\n".join(wordpiece.vocabulary) + "\n")

    order, size = np.random.RandomState(arguments.seed).permutation(len(rows)), arguments.batch_size
    wanted = BATCH_COUNTS[arguments.batches] * size
    if arguments.batches == "short":
        if wanted > len(rows):
            parser.error(f"{wanted} rows are needed and the split has {len(rows)}: use --split train.")
        encoded = wordpiece.encode(tf.gather(rows.text, order[:wanted]))["input_ids"].to_list()
        batches = sort_into_batches(encoded, rows.labels[order[:wanted]], size, wordpiece.pad_id)
    else:
        tokens = wordpiece.tokenize(tf.gather(rows.text, order)).to_list()
        packed = pack(tokens, wanted, ROW_LENGTH, wordpiece.cls_id, wordpiece.sep_id)
        if packed is None:
            parser.error(f"the split has too little text for {wanted} rows: use --split train.")
        labels = np.resize(rows.labels[order], wanted).astype(np.int32)
        cuts = [slice(start, start + size) for start in range(0, wanted, size)]
        batches = [(packed[cut], np.ones((size, ROW_LENGTH), np.int32), labels[cut]) for cut in cuts]

    arrays, digest = {}, hashlib.sha256()
    for index, batch in enumerate(batches):
        for name, array in zip(("input_ids", "attention_mask", "labels"), batch):
            arrays[f"{name}_{index}"] = array
            digest.update(np.ascontiguousarray(array).tobytes())
    np.savez(arguments.folder / "batches.npz", **arrays)
    texts = [text.decode() for text in tf.gather(rows.text, order).numpy()]
    (arguments.folder / "texts.json").write_text(json.dumps([texts, np.asarray(rows.labels)[order].tolist()]))
    tokens, lengths = sum(int(batch[1].sum()) for batch in batches), [int(batch[0].shape[1]) for batch in batches]
    about = {"directory": str(directory), "weights": "random" if random_weights else "pretrained", "lengths": lengths}
    about |= {"tokens": tokens, "text": f"{task}, {arguments.split} split", "sha256": digest.hexdigest()}
    (arguments.folder / "batches.json").write_text(json.dumps(about))
