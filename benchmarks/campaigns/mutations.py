"""Mutations: a line of the package is changed, and the tests that concern it must fail.

`python benchmarks/mutations.py` runs all; `--only bank` those whose file or line has that word, `--only-new main` those
that the table of that commit has not, `--changed main` those of files that differ from it. Each runs in a copy of the
working tree, against the tests that CI runs. A line of the table that is not found, or found twice, is refused before
any test runs.
"""

import argparse
import ast
import concurrent.futures
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile

from benchmarks.result import ROOT

#: File of `tf_adapters`, a piece of it, what stands in its place, and the tests: names of files, perhaps with pytest's
#: `-k` behind a colon.
# fmt: off
MUTATIONS = [
    ("__init__.py", 'os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")', "pass", "packaging:keep_memory"),
    ("layers/bank.py", "[[tf.zeros_like(value) for value in lists[0]], *lists]", "[lists[0], *lists]", "fused:picked"),
    ("layers/bank.py", "tf.where(here, of_one, 0)", "of_one", "fused:picked"),
    ("_keras_internals.py", "self._deduplicate_sparse_grad(gradients)", "gradients", "optimizer:whole"),
    ("models/injection.py", "return {**own, **_in_order(model, state, list(names.values()))}", "return own",
     "label_order:keeps_its_output"),
    ("layers/bank.py", "tf.maximum(index - start, 0)", "index", "fused:picked"),
    ("methods/bottleneck.py", "return None if drops else", "return", "fast:draws_in_training"),
    ("models/site.py", "None if training and name in self.switches().drops else", "", "fast:draws_in_training"),
    ("models/site.py", 'vars(layer)[part.replace(".", "_")] =', "_ =", "table:takes_over"),
    ("models/transformers/door.py", "model.optimizer.build(model.trainable_variables)", "pass", "fast:keras_traces"),
    ("models/keras_files.py", 'path.endswith((".h5", ".json"))', 'path.endswith(".h5")', "keras_weights:does_not_fit"),
    ("training/fit.py", "held.enter_context(only_writer(output, wait=0))", "pass", "interrupted:one_process"),
    ("training/disk.py", "with only_writer(output, wait=0):", "if True:", "interrupted:one_process"),
    ("training/pretrain.py", "with only_writer(output, wait=0):", "if True:", "interrupted:to_themselves"),
    ("training/experiment.py", "with only_writer(output, wait=0):", "if True:", "interrupted:to_themselves"),
    ("training/experiment.py", "steps >= _REPAID and", "", "experiment:long_enough"),
    ("training/experiment.py", "and not settings.jit_compile", "", "experiment:long_enough"),
    ("training/experiment.py", "and state.door.why_not_fast(state.family) is None", "", "experiment:long_enough"),
    ("cli/progress.py", 'and experiment.precision == "float32" and', "and", "experiment:how_a_run"),
    ("models/injection.py", "why = fast and state.door.why_not_fast(state.family)", "why = None", "fast:another_shape"),
    ("studies/lab.py", "with only_writer(output, wait=0):", "if True:", "interrupted:to_themselves"),
    ("tuning/search.py", "if self.is_worker else only_writer", "if True else only_writer", "interrupted:to_themselves"),
    ("saving/atomic.py", "if _HELD.get(key) == thread:", "if False:", "interrupted:one_process"),
    ("saving/atomic.py", "_wait_for(handle, folder, wait)", "pass", "interrupted:one_process"),
    ("cli/directories.py", 'else path.with_name(f"{path.name}-trained")', "else path", "interrupted:comes_after"),
    ("cli/predict.py", "share_cores if one else None", "share_cores", "cli:share"),
    ("cli/evaluate.py", "first=share_cores)", "first=None)", "cli:share"),
    ("cli/train.py", "share_cores if shares else make", "make", "cli:share"),
    ("cli/train.py", "if run.precision is None and usual and", "if run.precision is None and", "cli:embedded"),
    ("cli/train.py", "run.fast is not False and", "", "cli:embedded"),
    ("cli/train.py", "not False and has_bfloat16():", "not False:", "cli:embedded"),
    ("_installation.py", "len(affinity(0)) if affinity else", "", "cli:one_core"),
    ("cli/main.py", "os.open(os.devnull, os.O_RDWR)", "pass", "pipes:standard_streams"),
    ("cli/main.py", 'sys.stdout.reconfigure(errors="backslashreplace")', "pass", "pipes:standard_streams"),
    ("cli/report.py", 'name.replace("$", r"\\$")', "name", "evaluate:confusion"),
    ("_keras_internals.py", "        setattr(inner, name, value)\n", "        pass\n", "keras_internals:nadam"),
    ("_keras3_internals.py", "getattr(inner, name).assign(value)\n    places", "pass\n    places",
     "keras_hub:as_if_nothing"),
    ("_keras3_internals.py", "(*slots.values(), made_anew.values())", "slots.values()", "keras_hub:as_if_nothing"),
    ("_keras3_internals.py", "all(value is None or isinstance(value, keras.Variable) for", "all(value is not None for",
     "keras_hub:as_if_nothing"),
    ("tasks/analysis.py", "if several and len(labels) == 1:", "if False:", "evaluate:report"),
    ("serving/convert.py", 'if quantize == "none" else contextlib.nullcontext()', "", "runtimes:eight_bits"),
    ("serving/convert.py", "kept = [*_updates(state), *state", "kept = [*state", "runtimes:eight_bits"),
    ("training/run.py", "remove_folder(path.parent)", "pass", "fit:period_left"),
    ("training/run.py", "            remove_folder(self.output / RESUME_FOLDER)", "            pass", "fit"),
    ("training/fit.py", "result.interrupted or keep_state", "result.interrupted", "cli:ended_while"),
    ("training/experiment.py", '"keep_state": True', '"keep_state": False', "experiment:killed_while"),
    ("training/experiment.py", "    remove_folder(output / RESUME_FOLDER)\n    return others", "    return others",
     "cli:ended_while"),
    ("cli/progress.py", '"keep_state": True', '"keep_state": False', "cli:ended_while"),
    ("cli/progress.py", "for name in (RESUME_FOLDER, SEEDS_FILE)", "for name in ()", "cli:ended_while"),
    ("cli/command.py", "        raise KeyboardInterrupt\n", "        pass\n", "cli:ended_while"),
    ("cli/command.py", "        signal.signal(signal.SIGTERM, before)", "        pass", "cli:ended_while"),
    ("training/run.py", "interrupted = self._stops() or ", "interrupted = ", "cli:ended_while"),
    ("training/experiment.py", "            remove_folder(folder / RESUME_FOLDER)\n", "",
     "experiment:stopped_one"),
    ("cli/progress.py", "self.trained = resume", "self.trained = True", "cli:interrupted_run"),
    ("cli/progress.py", "self.trained = resume", "self.trained = False", "cli:interrupted_run"),
    ("cli/progress.py", "going_on(overwrite)", "going_on(False)", "cli:interrupted_run"),
    ("cli/main.py", "            return 130", "            return 0", "cli:before_a_command"),
    ("cli/tune.py", "    except KeyboardInterrupt:", "    except ZeroDivisionError:", "tuning:after_its_last"),
    ("training/run.py", 'if epoch else "nothing was saved to"', "", "fit:divergence"),
    ("studies/ablation.py", "variants if 1 < variants < len(tasks) else 3", "3", "studies:side_by_side"),
    ("studies/numbers.py", "for number in numbers if number is not None]", "for number in numbers]",
     "studies:without_a_score"),
    ("methods/bottleneck.py", "kernel * gate, bias * gate, None", "kernel * gate, bias, None", "layers"),
    ("methods/bottleneck.py", 'if name in ("down", "up") else self.bottleneck_size**-0.5', "", "layers:drawn"),
    ("methods/bottleneck.py", '{"down": 0, "up": 1}[name]', "0", "layers:drawn lifecycle:seed"),
    ("layers/method.py", "INNER_NORM_EPSILON = 1e-5", "INNER_NORM_EPSILON = 1e-6", "layers:formula"),
    ("methods/bottleneck.py", "update = self._dropout_layer(update, training=training)",
     "update = self._dropout_layer(update, training=True)", "layers:dropout"),
    ("layers/bank.py", ' + weights[f"{name}.bias"]', "", "bank_methods:several"),
    ("layers/bank.py", 'np.float32(config.alpha / config.rank) * arrays["b"]', 'arrays["b"]', "bank_methods:several"),
    ("layers/bank.py", 'states + states * weights["excess"] + weights["shift"] + update', "states + update",
     "bank_methods:bert"),
    ("layers/bank.py", "scaling * b * factor", "scaling * b", "bank_methods:bert"),
    ("layers/bank.py", "np.float32(factor) * arrays[part]", "arrays[part]", "bank_methods:bert"),
    ("layers/bank.py", "states * update if", "update if", "bank_methods:bert"),
    ("models/site.py", '"after-norm": lambda: self.norm(hidden_states + input_tensor)',
     '"after-norm": lambda: hidden_states + input_tensor', "bank_methods:several"),
    ("models/site.py", "self.original(self.routes.before(self.site, inputs))", "self.original(inputs)",
     "bank_methods:several"),
    ("serving/bank_graph.py", "rows if len(self.pools) == 1 else", "rows if True else", "bank_methods:several"),
    ("serving/bank_graph.py", "tasks.values() if new is None else [tasks[new]]", "tasks.values()",
     "bank:are_not_looked_at"),
    ("serving/bank_graph.py", "mine[0] = ~tf.reduce_any(mine[1:], 0)", "pass", "bank_methods:bert"),
    ("serving/task_parts.py", "if dense is not None and place not in", "if False and place not in",
     "bank_methods:routed_form"),
    ("layers/bank.py", "self._free[:0] = places", "pass", "bank:given_out"),
    ("layers/bank.py", "del self._free[-count:]", "pass", "bank:given_out"),
    ("serving/bank_graph.py", "weakref.finalize(self, ", "(lambda release, rows: release(rows))(", "bank:overwritten"),
    ("layers/bank.py", "if place + 2 < len(weights):", "if place < len(weights):", "bank:mixed"),
    ("layers/fused.py", "inverse * (centred - normalised * along)", "inverse * centred", "fused:norm"),
    ("layers/fused.py", "return x * below, below + x * bell", "return x * below, below", "fused:slopes"),
    ("layers/fused.py", "(odd + tf.constant(0x7FFF, tf.uint32))", "tf.constant(0x8000, tf.uint32)",
     "fused:conversions"),
    ("layers/attention.py", "weights * (upstream - along)", "weights * upstream", "attention"),
    ("layers/attention.py", "tf.float32 if dtype == tf.float16 else dtype", "dtype", "attention:half"),
    ("layers/attention.py", "tf.where(keep, kept, -tiny)", "tf.where(keep, kept, 0.0)", "attention:drops"),
    ("layers/attention.py", "tf.where(keep, 1 / kept, -1 / tiny)", "tf.where(keep, 1.0, -1 / tiny)",
     "attention:drops"),
    ("layers/attention.py", "tf.where(keep, upstream * kept, 0.0)", "tf.where(keep, upstream, 0.0)",
     "attention:drops"),
    ("layers/attention.py", "weights, tf.zeros([])", "weights, tf.identity(weights)", "attention:kept"),
    ("layers/attention.py", "scores += tf.maximum(mask, mask.dtype.min)", "pass", "attention:formula fast:prefixes"),
    ("layers/attention.py", "tf.minimum(rows, 1) * queries", "queries", "attention:rows"),
    ("layers/attention.py", "None if is_long and rows is None else is_long and rows > 0", "is_long", "attention:rows"),
    ("layers/attention.py", "is_long and rows > 0", "is_long", "attention:rows"),
    ("layers/attention.py", "else tf.maximum(mask, mask.dtype.min)", "else mask", "attention:without_a_key"),
    ("layers/attention.py", "- weights * along", "", "attention"),
    ("layers/attention.py", "scores = tf.matmul(query, key, transpose_b=True) * scale",
     "scores = tf.matmul(query, key, transpose_b=True)", "attention fast:logits"),
    ("layers/attention.py", "(upstream - along) * scale", "(upstream - along)", "attention"),
    ("layers/attention.py", "- weights * along) * scale", "- weights * along)", "attention"),
    ("layers/dropout.py", "if self.fused and shape is None and inputs.shape.rank == 3:", "if False:", "dropout"),
    ("training/step.py", "fused=state_of(model).fast", "fused=False", "dropout"),
    ("layers/attention.py", "number * size * scores", "0", "attention:drops"),
    ("layers/attention.py", "2**18 if uses_onednn() else 2**15", "2**15", "attention:onednn"),
    ("layers/attention.py", "count % sizes == 0", "sizes > 0", "attention"),
    ("layers/attention.py", "tf.minimum(each // heads, of_rows - 1) * of_heads", "0", "attention:formula"),
    ("layers/attention.py", "tf.minimum(each % heads, of_heads - 1)", "0", "attention:formula"),
    ("layers/fused.py", "upstream = backward(upstream, seed)", "pass", "fused"),
    ("layers/fused.py", "_row_means(scaled * normalised)", "_row_means(upstream * normalised)", "fused"),
    ("layers/fused.py", "inputs * (1 / (1 - rate))", "inputs", "fused"),
    ("layers/fused.py", "first = _mix(first + _mix(second))", "first = _mix(first)", "fused"),
    ("methods/lora.py", "self.scaling * update", "update", "layers:formula"),
    ("methods/lora.py", "self.scaling if gate is None else self.scaling * ops.cast(gate, ops.float32)", "self.scaling",
     "layers:formula"),
    ("methods/ia3.py", "(kernel * scale, bias * scale)", "(kernel * scale, bias)", "layers:formula"),
    ("methods/fusion.py", 'weights["value.kernel"] if gate is None else weights["value.kernel"] * gate',
     'weights["value.kernel"]', "layers:formula"),
    ("layers/fused.py",
     "(wide(weight) * adapter.gate for weight in",
     "(wide(weight) * (adapter.gate if weight.shape.rank == 2 else 1.0) for weight in",
     "fast:switched keras_hub_fast:switched"),
    ("serving/convert.py", 'back_to_back_optimizer._func_map.pop(("Reshape",), None)', "pass", "runtimes:copies_sizes"),
    ("models/weight_files.py", '[part.rpartition("___")[2] for part in parts[:-1]]', "parts[:-1]",
     "loading:name_of_tensorflow"),
    ("paths.py", "if os.path.isfile(path):", "if False:", "bad_input:cannot_be"),
    ("layers/attention.py", "wide(b) * factor", "wide(b)", "fast:gradients"),
    ("models/keras_hub/fast.py", "* tf.cast(site.acting.guard(), gamma.dtype)", "", "keras_hub_fast:switched"),
    ("models/keras_hub/fast.py", "context if kept is None else context * kept", "context", "keras_hub_fast:padding"),
    ("methods/dora.py", "ops.stop_gradient(", "(", "layers:dora"),
    ("methods/dora.py", "(ops.column_norms(direction) + _TINY)", "(ops.column_norms(direction))", "layers:dora"),
    ("methods/dora.py", "(after + _TINY)", "after", "layers:dora"),
    ("methods/dora.py", "low_rank = False", "low_rank = True", "fast:gradients"),
    ("kinds/sentences.py", "smoothed_crossentropy, share=settings.label_smoothing", "smoothed_crossentropy, share=0.0",
     "settings:smoothed"),
    ("kinds/sentences.py", "[len(examples) - have, have]", "[have, len(examples) - have]", "settings:balanced"),
    ("kinds/sentences.py", "ops.take(weights, targets) * losses", "losses", "settings:balanced"),
    ("tasks/rows.py", 'if kind == "classification":', 'if kind != "multi-label":', "splitting"),
    ("kinds/sentences.py", "tf.repeat(text, tf.shape(choices)[1])", "tf.tile(text, tf.shape(choices)[1:])",
     "multiple_choice"),
    ("kinds/sentences.py", "tf.int64)) - 1", "tf.int64))", "multiple_choice"),
    ("tasks/choices.py", "begun + ending if", "ending if", "multiple_choice"),
    ("tasks/named.py", "taken |= set(files.of)", "pass", "token_classification:entity_tasks"),
    ("tasks/named.py", "self.spellings.get(cell, cell)", "cell", "named_tasks:original_glue"),
    ("tasks/own_files.py", "if value != getattr(Reading, name):", "if False:", "token_classification:mistake"),
    ("models/transformers/site.py", "known & (self.head.read_value() == self.traced_head)", "known", "own_heads:graph"),
    ("models/state.py", "held.kept = {**held.kept, self.plain: held.values_of(self.owner, self.door.read)}", "pass",
     "own_heads:merged"),
    ("models/transformers/door.py", ", autograph=family_of(model).autograph", "", "pipeline:autograph"),
    ("models/transformers/door.py", "            _freeze_all_but(layer, chosen)\n    _freeze_waiting_heads(state)",
     "            _freeze_all_but(layer, chosen)", "own_heads:waits"),
    ("models/transformers/door.py", "        internals.change_class(self._model, self._class)\n", "",
     "own_heads:interrupted"),
    ("models/site.py", " or (training and self.switches().drops):", ":", "methods:drop"),
    ("methods/bottleneck.py", "and not (self.dropout and training)", "", "fast:own_dropout"),
    ("models/site.py", "or (adapter.dropout and training):", ":", "fast:own_dropout"),
    ("models/transformers/fast.py", 'nan = tf.constant(float("nan"), outputs.dtype)',
     "nan = tf.constant(0.0, outputs.dtype)", "fast:first_token"),
    ("models/transformers/fast.py", "output_attentions or output_hidden_states or self", "output_attentions or self",
     "fast:first_token"),
    ("text/batching.py", "2 * (epoch * windows + window) + 1", "2 * window + 1", "batching"),
    ("text/batching.py", "choices >= longest", "choices > longest", "batching"),
    ("text/batching.py", "used = steps * batch_size if drop_remainder else count", "used = count", "batching"),
    ("kinds/masked_lm.py", "noise[1] < 0.9", "noise[1] < 0.99", "masking"),
    ("tasks/metrics.py", "(predictions > 0)", "(predictions > 1)", "metrics"),
    ("tasks/metrics.py", "if finite else", "if True else", "metrics"),
    ("tasks/metrics.py", "max(word_f1(text, reference)", "min(word_f1(text, reference)", "question_answering:metric"),
    ("tasks/metrics.py", "float(-loss / count)", "float(-loss)", "pretrain:perplexity"),
    ("training/step.py", "regularization_losses=self.losses", "regularization_losses=None", "step:regularisation"),
    ("training/step.py", "own_share = self.weigh(own_targets) / tf.maximum(total, 1.0)", "own_share = 1.0 / self.parts",
     "step:whole"),
    ("training/step.py", "[seed[:, number] for seed in seeds]", "[seed[:, 0] for seed in seeds]", "step:masks"),
    ("training/step.py", "self._calls += 1", "self._calls = 1", "step:masks"),
    ("training/parts.py", "compute(*part_of(inputs, targets, number, parts, weigh),",
     "compute(*part_of(inputs, targets, number, parts, weigh)[:2], 1.0 / parts,", "step:whole"),
    ("training/parts.py", "tensor[:count]", "tensor", "step:whole"),
    ("training/step.py", "share, counts=False)", "share)", "step:whole"),
    ("training/parts.py", "type(workers) is Alone", "True", "step:stands"),
    ("training/parts.py", "* math.prod(choices)", "", "ahead:shapes"),
    ("training/parts.py", "own = max(1, ", "own = max(0, ", "ahead:shapes"),
    ("training/parts.py", "if (own, length) not in seen:", "if True:", "ahead:shapes"),
    ("training/parts.py", "            stopped.set()\n", "            pass\n", "ahead:shapes"),
    ("training/parts.py", "sorts[adapted] = block", "sorts[0] = block", "ahead:rehearsed"),
    ("training/step.py", "is_short and block is last", "False", "ahead:rehearsed"),
    ("training/step.py", "_Drawn(tf.zeros([2], tf.int64))) for dropout in self._drawing]", "0) for dropout in ()]",
     "ahead:rehearsed"),
    ("training/step_keras3.py", "with first_token_only(), _from(self.seeds, [", "with _from(self.seeds, [",
     "keras_hub_parts:rehearsed"),
    ("training/step_keras3.py", ", _from(self.seeds, [tf.zeros([2], tf.uint32)] * len(self.seeds)):", ":",
     "keras_hub_parts:rehearsed"),
    ("training/trained.py", "or not state_of(self.model).fast", "", "ahead:run_of"),
    ("training/run.py", "with self.trained.compiling_ahead(batches):", "if True:", "ahead:run_of"),
    ("training/step_keras3.py", "parts_of_a_step(model, settings, workers) if inner is model else 1", "1",
     "keras_hub_parts:stands"),
    ("training/step_keras3.py", "[_apart(state, number) for state in states]", "states", "keras_hub_parts:masks"),
    ("training/step_keras3.py", "generator.state.assign(_further(state, count))", "pass", "keras_hub_parts:masks"),
    ("training/step_keras3.py", "compute_loss(inputs, targets, outputs, share)",
     "compute_loss(inputs, targets, outputs)", "keras_hub_parts:whole"),
    ("training/step_keras3.py", '(mean, "update_state", lambda', '(mean, "own", lambda', "keras_hub_parts:whole"),
    ("training/step_keras3.py", "internals.count_loss(step, loss, targets, outputs)", "pass", "keras_hub_parts:whole"),
    ("kinds/kind.py", "1 if alone else AT_ONCE", "1", "keras_hub_parts:threads"),
    ("kinds/kind.py", "if 2 * rows <= size * self.at_once:", "if False:", "fast:few_rows"),
    ("training/trained.py", "len(variable.shape) < 2", "len(variable.shape) < 1", "optimizer"),
    ("training/trained.py", "(0.0 if self.from_start else warmup)", "0.0", "fit:schedule"),
    ("training/trained.py", "(0.0 if self.from_start else warmup)", "warmup", "optimizer:fall"),
    ("training/trained.py", "return _LATE if self._late", "return super().iterations if self._late",
     "optimizer:adam"),
    ("methods/bottleneck.py", 'if self.init_distribution == "truncated" else initializers', "if True else initializers",
     "layers:drawn"),
    ("layers/ops/keras3.py", "ops.transpose(b) if transpose_b else b", "b", "layers:formula"),
    ("layers/ops/keras3.py", "0.2 * inputs + 0.5", "inputs / 6 + 0.5", "layers:activations"),
    ("tasks/analysis.py", "if f1[nearest] > of_usual else 0.0", "", "thresholds"),
    ("kinds/sentences.py", "return found if tuned > usual else np.zeros_like(found)", "return found", "thresholds"),
    ("models/state.py", "if tuple(variable.shape) == shape][-1]", "if tuple(variable.shape) == shape][0]",
     "thresholds"),
    ("training/settings.py", "if batch_size % devices:", "if batch_size < devices:", "strategies:another_scope"),
    ("training/strategies.py", "if self.any(unseen):", "if False:", "strategies:does_not_see"),
    ("training/step_keras3.py", "(seed * 1_000_003 + number)", "(number)", "keras_hub_training:dropout"),
    ("training/step_keras3.py", "    internals.let_attentions_drop(model)\n", "    pass\n",
     "keras_hub_training:dropout"),
    ("training/step_keras3.py", "built_with if rate is None or id(layer) in of_adapters else rate", "built_with",
     "keras_hub_training:dropout"),
    ("training/step_keras3.py", 'drawn = [(drop, "number", internals.uncast(drop.number) * 1) for drop in drops]',
     "drawn = []", "keras_hub_training:computed_again"),
    ("models/transformers/door.py", "model.train_function, model.train_tf_function = step_made_anew(model), None",
     "model.train_function = model.train_tf_function = None", "trainable:callback"),
    ("models/keras_hub/door.py", "one.train_function = step_made_anew(one)", "one.train_function = None",
     "keras_hub:callback"),
    ("training/step_keras3.py", '"backend": keras.backend.backend()', '"backend": ""',
     "keras_hub_training:another_backend"),
    ("layers/ops/keras3.py", "ops.take_along_axis(values, labels[:, None], axis=-1)[:, 0]", "values[:, 0]",
     "keras_hub_training:losses"),
    ("studies/ablation.py", "if not first <= place <= last", "if not first < place <= last", "studies:hand"),
    ("studies/attack.py", "-lost[number][word][0] * weights[word]", "-weights[word]", "studies:made_up"),
    ("studies/attack.py", "flat[place] = tokenizer.unk_id", "pass", "studies:unknown_word"),
    ("studies/numbers.py", "max(of_seeds, run[", "min(of_seeds, run[", "studies:within_noise"),
    ("studies/comparison.py", '"scores": run["last_scores"]', '"scores": run["scores"]', "studies:last_epoch"),
    ("studies/inside.py", "np.triu_indices(len(rows), 1)", "np.triu_indices(len(rows), 0)", "studies:similarity"),
    ("studies/rows.py", "order[count:end]", "order[:end]", "studies:rows_that_choose"),
    ("studies/lab.py", 'complete = text[: text.rfind(b"\\n") + 1]', "complete = text", "studies:killed"),
    ("training/disk.py", 'key=lambda run: run["validation"]', 'key=lambda run: run.get("test", run["validation"])',
     "seeds"),
    ("training/step.py", "initial + dropout(current - initial, training=training)",
     "dropout(current, training=training)", "mixout:entry"),
    ("training/trained.py", "len(variable.shape) >= 2} - head", "len(variable.shape) >= 2}", "mixout:entry"),
    ("training/step_keras3.py", "mixed = begun + keras", "mixed = keras", "keras_hub_training:mixout"),
    ("training/step.py", "(seed * 1_000_003 + len(layers)) % 2**31", "seed", "dropout:masks fit:dropout"),
    ("training/run.py", 'value > self.best["value"]', 'value >= self.best["value"]', "fit:better fit:learns"),
    ("training/run.py", '- self.best["epoch"] >= patience', '- self.best["epoch"] > patience', "fit:better"),
    ("training/run.py", "-1 - step]", "-1]", "pretrain:masks"),
    ("training/run.py", "variable.numpy() * begun for", "variable.numpy() for", "fit:kill"),
    ("training/frozen_blocks.py", "real = places < self._starts", "real = places <= self._starts",
     "frozen_blocks:stored"),
    ("training/step.py", "dropouts.append((layer, max(1, uses)))", "dropouts.append((layer, 1))",
     "checkpointing:bit_equal"),
    ("kinds/masked_lm.py", "/ ops.maximum(ops.sums(counts), 1.0)", "", "keras_hub_pretrain:loss"),
    ("kinds/masked_lm.py", "positions[guessed[:, 3].astype(np.int64)]", "guessed[:, 3].astype(np.int64)",
     "pretrain:perplexity"),
    ("layers/ops/keras3.py", "ops.top_k(values, ", "ops.top_k(-values, ", "keras_hub_pretrain:hidden"),
    ("models/keras_hub/door.py", "ops.reshape(states, (-1, backbone.hidden_dim)), places)",
     "ops.reshape(states, (-1, backbone.hidden_dim)), places * 0)", "keras_hub_pretrain:hidden"),
    ("models/keras_hub/door.py", 'keras.ops.arange(ops.shape(places)[0], dtype="int32")',
     'keras.ops.zeros(ops.shape(places)[0], dtype="int32")', "keras_hub_pretrain:hidden"),
    ("training/step_keras3.py", "(model) if inner is model else inner", "(model)", "keras_hub_pretrain:alone"),
    ("training/step_keras3.py", "_further(states[number], counts[number] - 1)", "states[number]",
     "keras_hub_training:computed_again"),
    ("text/batching.py", "tf.fill(rows, share * parts)", "tf.ones(rows)", "keras_hub_training:memory"),
    ("training/trained.py", "step // self.parts", "step", "keras_hub_training:memory"),
    ("layers/ops/keras3.py", "[_whole(gradient) for gradient in grads]", "grads", "keras_hub_training:optimizers"),
    ("kinds/masked_lm.py", "mean + _SPARE * tf.sqrt(mean)", "mean", "masking pretrain:hidden"),
    ("training/fit.py", '        "validation_data": task.validation.digest(),\n', "", "label_order:resume"),
    ("training/fit.py", '        "label_names": list(task.labels),\n', "", "label_order:resume"),
    ("training/fit.py", '    kind.check_model(model, "The task", task.labels)\n', "", "label_order:trained"),
    ("adapterhub/bridge.py", "    if labels is not None:\n", "    if False:\n", "label_order:imported"),
    ("training/fit.py", '    check_acts(state, "fit")\n', "", "what_acts:neither"),
    ("training/fit.py", "[*saved, *(", "[*(", "what_acts:second"),
    ("training/fit.py", '        "metric": task.metric,\n', "", "label_order:resume"),
    ("training/run.py", "writer = csv.DictWriter(text, columns, ", "writer = csv.DictWriter(text, row, ",
     "what_acts:columns"),
    ("models/injection.py", " if state.active_blocks is None or place[0] in state.active_blocks]", "]",
     "what_acts:merged"),
    ("saving/directory.py", 'settings.get("pretrained_adapter")', "state.owner.pretrained", "lifecycle:went_on"),
    ("saving/directory.py", '    check_acts(state, "save_adapter")\n', "", "what_acts:neither"),
    ("models/weight_files.py", "np.ascontiguousarray(array.T) if transposed else array", "array", "directory"),
    ("saving/settings.py", "if path.name == NEXT_WEIGHTS_FILE:", "if False:", "directory:kills"),
    ("saving/directory.py", "state.put(state.owner, variable, plain.get(id(variable), variable))", "pass",
     "directory:same_name state_machine:learned"),
    ("models/keras_files.py", "get_config = save_assets = refuse", "get_config = refuse", "keras_hub_files:refused"),
    ("models/keras_hub/door.py", 'vars(owner)["get_config"] = refuse', "pass", "keras_hub_files:refused"),
    ("models/transformers/site.py", "refuse() if writes_saved_model() else ", "", "keras_saving"),
    ("models/keras_hub/door.py", "in state.freezing[0]:", "in ():", "keras_hub_files:removal"),
    ("models/keras_hub/door.py", "internals.set_trainable_alone(layer, trains)", "pass", "keras_hub_files:removal"),
    ("models/keras_hub/door.py", "internals.set_dropout(layer, rate)", "pass", "keras_hub_files:removal"),
    ("models/keras_hub/site.py", "ops.less_equal(ops.convert_to_tensor(drop", "ops.less(ops.convert_to_tensor(drop",
     "keras_hub_training:random_drop"),
    ("models/keras_hub/site.py", "ops.less_equal(ops.convert_to_tensor(self.number), self.last)", "True",
     "keras_hub:lacks"),
    ("models/trainable.py", "origin.exchange(old, new)", "pass", "keras_hub_bits"),
    ("models/keras_hub/site.py", "ops.reshape(matrix_of(self.dense)", "ops.reshape(self.dense.kernel",
     "keras_hub_bits"),
    ("models/keras_hub/site.py", "policy_without_bits(dense.dtype_policy)", "dense.dtype_policy", "keras_hub_bits"),
    ("models/keras_hub/door.py", "lambda: variable)()", "None) and variable", "keras_hub_bits"),
    ("models/keras_hub/door.py", '("kernel_scale", "embeddings_scale")', "()", "keras_hub_bits:frozen_kernels"),
    ("models/state.py", 'check_not_cast(variables, "The digest of an encoder")', "pass", "storage:another_model"),
    ("models/keras_files.py", 'str(filepath).endswith("5")', "False", "storage:comes_back"),
    ("models/keras_files.py", "check_not_cast(model.weights, ", "print(model.weights, ", "storage:another_model"),
    ("models/transformers/loading.py", "check_not_cast(model.weights, ", "print(model.weights, ", "storage:another"),
    ("models/keras_hub/site.py", "class Acting(Unsaved, ", "class Acting(", "keras_hub_files:no_say"),
    ("models/keras_hub/site.py", "class Site(SharedSite, Unsaved, ", "class Site(SharedSite, ",
     "keras_hub_files:no_say"),
    ("models/keras_files.py", 'self._check_in_files("save_weights")', "pass", "keras_weights:larger"),
    ("models/keras_files.py", 'self._check_in_files("tf.train.Checkpoint")', "pass", "keras_weights:larger"),
    ("models/weight_files.py", "if not np.array_equal(variable.numpy(), value.astype(np.float32))", "if False",
     "change_head:no_longer"),
    ("models/injection.py", "take_encoder(model, state)", "pass", "two_models"),
    ("models/state.py", "mark.adapters and mark is not state", "mark is not state", "two_models"),
    ("models/state.py", "and not all(mark is state for mark in marks)", "and False", "two_models:exchanged"),
    ("saving/atomic.py", "temporary.chmod(mode)", "pass", "atomic:umask"),
    ("text/tokenizer.py", "(number >= size or token in of_text - set(cut))", "False", "wordpiece:added byte_bpe:added"),
    ("text/wordpiece.py", " and not alone:", ":", "wordpiece"),
    ("adapterhub/torch_files.py", "if opcode.name not in _OPCODES:", "if False:", "torch_files"),
    ("adapterhub/torch_files.py", "if found not in _KNOWN:", "if False:", "torch_files"),
    ("adapterhub/peft.py", "    _refuse_trained_encoder(model, [", "    print(model, [", "adapterhub_refused"),
    ("adapterhub/peft.py", "if not _has_file_of_pooler(state):", "if False:", "adapterhub:pooler"),
    ("models/keras_files.py", "if len(adapters) > 1:", "if False:", "keras_weights"),
    ("models/keras_files.py", "undo.restore()", "pass", "keras_weights"),
    ("models/keras_files.py", "state.forget_origin()", "pass", "keras_weights"),
    ("models/origin.py", 'hasattr(variable, "_tf_adapters_cast")', "False", "keras_hub_bits"),
    ("tasks/labels.py", "names if numbers is None else [name for _, name in sorted(zip(numbers, names))]", "names",
     "tasks"),
    ("tasks/files.py", "ahead.extendleft(reversed(row[1:]))", "pass", "files"),
    ("tasks/files.py", "elif len(row) != len(names):", "elif len(row) < 0:", "files"),
    ("tasks/files.py", "delimiter or said[1]", 'delimiter or ","', "files"),
    ("tasks/lines.py", 'if "\\0" in line or not line.isascii():', 'if "\\0" in line:', "files"),
    ("tasks/labels.py", "encoded[row, numbers] = 1", "encoded[row] = 1", "tasks"),
    ("tasks/labels.py", "whole[1]) if whole else name", "name) if whole else name", "tasks"),
    ("tasks/labels.py", "places.setdefault(label_name(name), places[name])", "pass", "tasks"),
    ("kinds/tokens.py", "flat[splits[start] + words] = logits[window, position]",
     "flat[words] = logits[window, position]", "token_classification:window"),
    ("text/windows.py", 'side="left") - 1', 'side="right") - 1', "question_answering:window"),
    ("text/windows.py", "first = tokenizer.before_second", "first = 2", "question_answering:short_context"),
    ("text/windows.py", "tf.where(is_last, reaching_back, start)", "start", "token_classification:window"),
    ("serving/export.py", "tf.boolean_mask(lengths, lengths >= longest)", "lengths", "export:answered"),
    ("serving/export.py", "if id(variable) not in unread]", "]", "methods:while"),
    ("serving/onnx_graph.py", "_LayerNorm, _LayerNormOfKeras3,", "_LayerNorm,", "keras_hub_files:of_ids"),
    ("models/keras_hub/site.py", "(self.merged or self.dense)(inputs)", "self.dense(inputs)", "keras_hub_files:of_ids"),
    ("models/keras_hub/family.py", " if theirs in model.input]", "]", "keras_hub_files:of_ids"),
    ("serving/convert.py", '"onnx": tf.int64', '"onnx": tf.int32', "runtimes:another_runtime"),
    ("serving/onnx_graph.py", "op.LayerNormalization(x, ones, **how), gamma), beta)",
     "op.LayerNormalization(x, ones, **how), beta), gamma)", "runtimes:a_bank_in"),
    ("cli/export.py", 'elif quantize != "none":', "elif False:", "runtimes:nothing_measured"),
    ("cli/export.py", "            if data_dir is not None:\n                raise\n", "", "runtimes:without_its_data"),
    ("serving/export.py", "tf.where(_like(finite, values), values, tf.zeros([], values.dtype))", "values",
     "export:finite"),
    ("serving/export.py", "tf.where(places <= last, given(", "tf.where(places >= 0, given(", "export:one_batch"),
    ("serving/export.py", "(tf.saturate_cast(values, tf.int32)", "(tf.cast(values, tf.int32)", "export:mask_follows"),
    ("serving/versions.py", "given[key].dtype != wanted[key].dtype or ", "", "export:does_not_take"),
    ("serving/bank_graph.py", '"num_labels": tf.where(number, 0, outputs)', '"num_labels": outputs', "bank:unknown"),
    ("serving/server.py", "pairs, texts, str, type(None))", "pairs, texts)", "server:in_its_forms"),
    ("serving/bank_graph.py", 'tf.where(finite, "", NOT_FINITE)', '""', "bank:finite"),
    ("serving/bank_graph.py", "tf.where(several[:, tf.newaxis], logits > 0, best)", "best", "bank:mixed"),
    # What was wrong before operations were transactions.
    ("models/injection.py",
     "    suspension = object()\n    try:\n        _suspend(model, suspension)\n        yield model\n",
     "    suspension = object()\n    held = state_of(model).switched.get('norms')\n"
     "    norms = [(norm, norm.read_value()) for norm in getattr(held, 'variables', ())]\n    try:\n"
     "        _suspend(model, suspension)\n        yield model\n"
     "        [norm.assign(value) for norm, value in norms]\n",
     "state_machine"),
    ("saving/directory.py", "@transaction\ndef load_adapter(", "def load_adapter(", "lifecycle:interrupted"),
    ("models/injection.py", "@transaction\ndef add_adapters(", "def add_adapters(", "lifecycle:interrupted"),
    ("serving/server.py", 'name.encode("unicode_escape").decode()', "name", "server:is_told"),
    ("serving/server.py", '            _only(body, "task", "texts", "text_pairs")\n', "", "server:gets_a_status"),
    ("serving/server.py", "            _only(set().union(*rows), *_INPUTS)\n", "", "server:gets_a_status"),
    ("serving/server.py", 'not in (None, "", "serving_default")', "is True", "server:gets_a_status"),
    ("serving/server.py", "asyncio.wait_for(self._ask(app, \"state\"), _ANSWERS_WITHIN)", "self._ask(app, \"state\")",
     "server:without_a_replica"),
    ("serving/server.py", "        if name in faults:\n", "        if False:\n", "server:without_a_replica"),
    ("kinds/kind.py", "if len(waiting) > at_once:", "if False:", "fast:two_batches"),
    ("kinds/kind.py", "ThreadPoolExecutor(at_once)", "ThreadPoolExecutor(1)", "fast:two_batches"),
    ("kinds/kind.py", "scorer.at_once = forward, 1", "scorer.at_once = forward, self.at_once", "runtimes:a_check"),
    ("text/batching.py", "-(-len(order) % batch_size)", "0", "batching:hold_each_row"),
    ("kinds/kind.py", "self._computed += -(", "-(", "fast:repays"),
    ("serving/server.py", "if logit > 0]", "if logit]", "server:several"),
    ("serving/server.py", "for.\n            self._drop(name)\n", "for.\n", "server:cannot_read"),
    ("serving/server.py", "asked = [row for row, error in zip(rows, errors) if error is None]", "asked = rows",
     "server:others"),
    ("serving/server.py", "await asyncio.sleep(wait)", "raise", "server:asked_for_again"),
    ("serving/server.py", "except (RayActorError, ObjectLostError):", "except RayActorError:",
     "server:asked_for_again"),
    ("serving/server.py", "                if self._separate:\n", "                if True:\n",
     "server:asked_for_again"),
    ("serving/server.py", "if not about.items() <= self._held.get(name, {}).items():", "if name not in self._held:",
     "server:is_told"),
    ("ranges.py", "check_choice(field.name, value, words[field.name])", "pass", "config:bad_value"),
    ("cli/command.py", "check_choice(name, value, about.values)", "pass", "bad_input:precision"),
    ("cli/command.py", "about.range.problem(value) is not None", "False", "bad_input:adapter-dropout"),
    ("cli/command.py", "range=about.range or RANGES.get(name)", "range=about.range", "bad_input:adapter-dropout"),
    ("models/keras_hub/site.py", "changes.append((embeddings", "iter((embeddings", "bank_methods:several"),
    ("layers/ops/keras2.py", "seed=seed, autocast=False", "seed=seed", "layers:keras_layer"),
    ("models/keras_hub/presets.py", 'settings["activation"] = None', "pass", "keras_hub_presets:fits"),
    ("text/sentencepiece.py", "own_spelling=False, settings={}", "settings={}", "keras_hub_presets:cuts"),
    ("cli/command.py", "of_words | of_fields | of_python", "of_words | of_python", "settings:excludes"),
    ("models/transformers/door.py", "for layer in (model, *model.submodules):\n        if isinstance(layer, keras.l",
     "for layer in model.submodules:\n        if isinstance(layer, keras.l", "trainable:resized"),
    ("models/origin.py", " or id(v) not in self._pooler]\n", "]\n", "trainable:resized"),
    ("models/transformers/loading.py", "    state.order_outputs(model, known, found)\n", "",
     "keras_hub_doors:pretrained_head_is"),
    ("models/keras_hub/loading.py", "    state.order_outputs(model, known, found)\n", "",
     "keras_hub_doors:pretrained_head_is"),
    ("models/injection.py", "    if state.pooler_came:\n", "    if False:\n", "adapterhub:peft"),
    ("pipeline.py", "rows = rows if rows.value_range else with_value_range(rows, task)", "pass", "pipeline:range"),
    ("pipeline.py", 'if hasattr(rows, "text_pair"):', "if False:", "pipeline"),
    ("tasks/lines.py", "marked if mark else encoding or marked", "encoding or marked", "files:every_format"),
    ("tasks/labels.py", r"|\s*-?\d+(\s*,\s*-?\d+)*\s*", "", "tasks:doubted"),
    ("tasks/spans.py", "cell = parse_json(cell)\n", "pass\n", "question_answering:tables"),
    ("training/fit.py", "period > settings.epochs * of_epoch:", "False:", "fit:refused"),
    ("training/disk.py", "os.replace(best / TENSORBOARD, self.output / TENSORBOARD)", "pass", "seeds"),
    ("studies/transfer.py", 'f"adapters of {size}": {"adapter"', '"adapters": {"adapter"', "studies:languages"),
    ("cli/report.py", " and not is_given(name, getattr(settings, name))", "", "words_alone"),
]
# fmt: on


def place(path, line):
    text = (ROOT / "tf_adapters" / path).read_text(encoding="utf-8")
    if text.count(line) != 1:
        sys.exit(f"error: {line!r} stands {text.count(line)} times in tf_adapters/{path}, not once: correct the table.")
    return text


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout


def table_of(commit):
    """The rows that the table of a commit has."""
    module = ast.parse(git("show", f"{commit}:{pathlib.Path(__file__).resolve().relative_to(ROOT)}"))
    (rows,) = (node.value for node in module.body if ast.unparse(node).startswith("MUTATIONS = "))
    return ast.literal_eval(rows)


def choose(only="", only_new=None, changed=None):
    """The rows that the options of these names ask for."""
    rows = [row for row in MUTATIONS if only in " ".join(row[:2])]
    if only_new:
        old = set(table_of(only_new))
        rows = [row for row in rows if row not in old]
    if changed:
        files = git("diff", "--name-only", changed, "--", "tf_adapters").split()
        rows = [row for row in rows if f"tf_adapters/{row[0]}" in files]
    return rows


def outcome(copy, tests):
    """What becomes of a mutated copy in the tests of these files with the words behind their colons."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "TF_CPP_MIN_LOG_LEVEL": "3"}
    for test in tests.split():
        name, _, words = test.partition(":")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not nightly"]
        command += [f"tests/test_{name}.py"] + (["-k", words] if words else [])
        status = subprocess.run(command, cwd=copy, env=environment, capture_output=True).returncode
        if status not in (0, 1):
            return "NO TEST   "
        if status:
            return "caught    "
    return "SURVIVED  "


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a word of the file or the line")
    parser.add_argument("--only-new", metavar="REF", help="rows that the table of this commit has not")
    parser.add_argument("--changed", metavar="REF", help="rows of files that differ from this commit")
    parser.add_argument("--workers", type=int, default=1, help="mutations at a time, each in a copy of its own")
    options = parser.parse_args()
    chosen = [(*row, place(*row[:2])) for row in choose(options.only, options.only_new, options.changed)]
    with tempfile.TemporaryDirectory() as folder:
        copies = queue.SimpleQueue()
        for number in range(options.workers):
            copies.put(pathlib.Path(folder) / f"copy-{number}")
            ignored = shutil.ignore_patterns(".git", ".venv", ".nightly", "results", "__pycache__")
            shutil.copytree(ROOT, pathlib.Path(folder) / f"copy-{number}", ignore=ignored)

        def try_one(path, line, other, tests, text):
            copy = copies.get()
            try:
                (copy / "tf_adapters" / path).write_text(text.replace(line, other), encoding="utf-8")
                word = outcome(copy, tests)
            finally:
                (copy / "tf_adapters" / path).write_text(text, encoding="utf-8")
                copies.put(copy)
            print(f"{word}{path}: {line}", flush=True)
            return word

        with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
            words = list(pool.map(lambda mutation: try_one(*mutation), chosen))
    survived = sum(word != "caught    " for word in words)
    sys.exit(f"{survived} of {len(chosen)} were not caught." if survived else None)
