"""Answers JSON lines by an exported model, on Apache Beam.

    tf-adapters export --adapters adapters/* --output serving/all/1
    pip install apache-beam tensorflow-hub
    python examples/score_with_beam.py --model serving/all/1 --input 'messages-*.jsonl' --output labels/part

Of a model of many tasks every line names its own: {"text": "a quiet film", "task": "film"}. A model of one task takes
the texts that its signature names: {"text": ...}, or {"question": ..., "context": ...}. Each line comes out with the
model's answer beside what it had; lines that cannot be read go to OUTPUT-unreadable. Arguments that are not listed here
are Beam's own, such as `--runner DataflowRunner`.
"""

import argparse
import json

import apache_beam as beam
from apache_beam.ml.inference.base import PredictionResult, RunInference
from apache_beam.ml.inference.tensorflow_inference import TFModelHandlerTensor
from apache_beam.options.pipeline_options import PipelineOptions

SIGNATURE = "serving_default"
# A model of many tasks has these inputs for all of them, and not every line needs each.
OPTIONAL = ("text_pair",)


def answer(model, rows, inference_args=None, model_id=None):
    """A `PredictionResult` for each of the rows, dicts of str, of a loaded SavedModel."""
    import tensorflow as tf

    signature = model.signatures[SIGNATURE]
    names = signature.structured_input_signature[1]
    answers = signature(**{name: tf.constant([row.get(name, "") for row in rows]) for name in names})
    columns = {name: values.numpy().tolist() for name, values in sorted(answers.items())}
    for row, values in zip(rows, zip(*columns.values())):
        found = {name: _text(value) for name, value in zip(columns, values)}
        yield PredictionResult(row, found, model_id)


def _text(value):
    if isinstance(value, list):
        return [_text(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


class SavedModelHandler(TFModelHandlerTensor):
    """Beam's own, which batches rows and loads the model once a process, for any SavedModel and not Keras' alone."""

    def __init__(self, directory, **options):
        super().__init__(directory, **options)
        self.directory = directory

    def load_model(self):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - the tokenizer's operations

        return tf.saved_model.load(self.directory)


class ReadLine(beam.DoFn):
    """A line's JSON object if it has what the model asks for, otherwise the line, tagged `unreadable`."""

    def __init__(self, needed):
        self.needed = needed

    def process(self, line):
        try:
            row = json.loads(line)
            readable = isinstance(row, dict) and all(isinstance(row.get(name), str) for name in self.needed)
        except ValueError:
            readable = False
        yield row if readable else beam.pvalue.TaggedOutput("unreadable", line)


def needed_inputs(directory):
    """Names of the strings that each line must have, read from the model's signature."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    with open(f"{directory}/saved_model.pb", "rb") as file:
        model = SavedModel.FromString(file.read())
    return sorted(set(model.meta_graphs[0].signature_def[SIGNATURE].inputs) - set(OPTIONAL))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="version directory, as `tf-adapters export` writes it")
    parser.add_argument("--input", required=True, help="file of JSON lines, or a pattern of several")
    parser.add_argument("--output", required=True, help="beginning of the names of the files to write")
    parser.add_argument("--batch-size", type=int, default=32, help="rows that the model gets at a time, at most")
    options, of_beam = parser.parse_known_args(arguments)
    handler = SavedModelHandler(options.model, inference_fn=answer, min_batch_size=1, max_batch_size=options.batch_size)
    with beam.Pipeline(options=PipelineOptions(of_beam)) as pipeline:
        lines = pipeline | beam.io.ReadFromText(options.input)
        rows = lines | beam.ParDo(ReadLine(needed_inputs(options.model))).with_outputs("unreadable", main="rows")
        answers = (
            rows.rows
            | RunInference(handler)
            | beam.Map(lambda result: json.dumps({**result.example, **result.inference}, ensure_ascii=False))
        )
        answers | "WriteAnswers" >> beam.io.WriteToText(options.output, file_name_suffix=".jsonl")
        rows.unreadable | "WriteUnreadable" >> beam.io.WriteToText(f"{options.output}-unreadable", skip_if_empty=True)


if __name__ == "__main__":
    main()
