"""`tf-adapters demo`, a page made with Gradio, which is the extra `demo`."""

import importlib.util
import os
import warnings

from tf_adapters.cli.command import argument, option
from tf_adapters.cli.directories import named_directories
from tf_adapters.cli.options import Source
from tf_adapters.cli.quiet import counting, start, terminal
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.serving.shared_encoder import SharedEncoder, read_tasks

# Name of a field, as `Kind.served_texts` has it: its title, its lines, and what stands in it before anything is typed.
FIELDS = {
    "text": ("Text", 2, "Words are what spaces separate, where words are labelled."),
    "text_pair": ("Second text", 2, "What the text is compared with."),
    "question": ("Question", 1, "What the context answers."),
    "context": ("Context", 6, "A text that holds the answer."),
    "choices": ("Choices", 4, "One a line, at least two."),
}


def demo(
    directories: argument(
        list[str],
        "Adapter directory, or several on one encoder, each as `DIRECTORY` or `NAME=DIRECTORY`.",
        "DIRECTORY...",
    ),
    host: option(
        str, "Address to listen at; `0.0.0.0` lets other machines in, and asks nobody who they are."
    ) = "127.0.0.1",
    port: option(int, "Port to listen at; 0 takes the first free one from 7860 on.") = 7860,
    open_browser: option(bool, "Open the page in the browser, too.", "--open") = False,
    model: Source = None,
):
    """Serve a page on this machine: type a text, and see labels and probabilities.

    Each adapter has a tab, with what it reads: a text or two, words to label, a question and its context, or choices.
    They share their encoder in memory. What is typed is sent to no other machine. The page is for trying; `tf-adapters
    export` is for serving.

    `tf-adapters demo adapters/rotten-tomatoes`

    `tf-adapters demo adapters/film spam=adapters/sms names=adapters/ner --port 8000`

    It needs Gradio: `pip install "tf_adapters[demo]"`.
    """
    named = named_directories(directories)

    tasks = read_tasks(named)
    for task in tasks.values():
        if task.settings["text"] is None:
            raise InputError(f"{task.directory} was saved without text settings, so it reads no raw text.")
    if importlib.util.find_spec("gradio") is None:
        raise InputError('The page is made with Gradio, which is not installed: run `pip install "tf_adapters[demo]"`.')
    console = terminal(stderr=True)
    start(console)
    with console.status("Loading Gradio ..."):
        gr = import_gradio()
    # Gradio's own use of its dependencies is nothing that a user could change.
    warnings.filterwarnings("ignore", module=r"(gradio|starlette|fastapi|uvicorn)(\.|$)")
    with counting(console, "loading", total=len(tasks), unit="adapters") as advance:
        page = build_page(SharedEncoder(tasks, backbone=model, progress=advance))
    # The usual theme has a browser fetch its fonts.
    theme = gr.themes.Default(font=("system-ui", "sans-serif"), font_mono=("ui-monospace", "monospace"))
    try:
        _, url, _ = page.launch(
            server_name=host, server_port=port or None, inbrowser=open_browser, share=False, show_error=True,
            prevent_thread_lock=True, quiet=True, ssr_mode=False, footer_links=[], theme=theme,
        )  # fmt: skip
    except OSError:
        raise InputError(
            f"There can be no page at --host {host} --port {port}: give an address of this machine, and a port that is "
            "free, or 0."
        ) from None
    print(f"The page is at {url} until you press Ctrl-C.", flush=True)
    page.block_thread()


def import_gradio():
    """The module `gradio`, which then sends nothing to anybody."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import gradio

    return gradio


def build_page(encoder):
    """A `gradio.Blocks` with a tab for each adapter of a `SharedEncoder`."""
    gr = import_gradio()
    pages = []
    for name, task in encoder.tasks.items():
        fields = fields_of(task)
        component, value_of = SHOWN[task.kind]

        def answer(*given, name=name, fields=fields, value_of=value_of):
            try:
                texts = texts_of(fields, given)
                record = answer_of(encoder, name, texts)
            except InputError as error:
                raise gr.Error(str(error)) from None
            return value_of(record, texts), record

        boxes = [
            gr.Textbox(label=title, lines=lines, placeholder=hint) for title, lines, hint in map(FIELDS.get, fields)
        ]
        outputs = [getattr(gr, component)(label=name), gr.JSON(label="As `tf-adapters predict` writes it")]
        pages.append(
            gr.Interface(answer, boxes, outputs, submit_btn="Answer", flagging_mode="never", analytics_enabled=False)
        )
    return gr.TabbedInterface(pages, list(encoder.tasks), title="tf-adapters demo", analytics_enabled=False)


def fields_of(task):
    """What a `SharedTask` reads, a tuple of names of `FIELDS`; of pairs the second follows the first."""
    return get_kind(task.kind).served_texts(task.about)


def texts_of(fields, given):
    """What was typed, as `SharedEncoder.answer` takes it: one text or two, a list of choices in place of the second.

    Raises:
        InputError: something is not filled in.
    """
    missing = [FIELDS[field][0].lower() for field, text in zip(fields, given) if not (text or "").strip()]
    if missing:
        raise InputError(f"Fill in: {', '.join(missing)}.")
    texts = [
        [line.strip() for line in text.splitlines() if line.strip()] if field == "choices" else text
        for field, text in zip(fields, given)
    ]
    if "choices" in fields and len(texts[1]) < 2:
        raise InputError("Give at least two choices, one a line.")
    return texts


def answer_of(encoder, name, texts):
    """One task's record for texts, a dict; raises InputError for what cannot be answered."""
    first, *second = texts
    (record,) = encoder.answer(name, [first], [second[0]] if second else None)
    if record.get("error"):
        raise InputError(f"No answer: {record['error']}")
    return record


def _words(record, texts):
    pieces = []
    for word, label in zip(record["words"], record["labels"]):
        pieces += [(word, None if label == "O" else label), (" ", None)]
    return pieces[:-1]


def _span(record, texts):
    context, start, end = texts[1], record["start"], record["end"]
    pieces = [(context[:start], None), (context[start:end], "answer"), (context[end:], None)]
    return [piece for piece in pieces if piece[0]]


def _choices(record, texts):
    # Numbered, because two choices may be the same words.
    return {
        f"{number}. {text}": value for number, (text, value) in enumerate(zip(texts[1], record["probabilities"]), 1)
    }


# What shows the answer of each kind: a component of Gradio, and a function of record and texts to its value.
SHOWN = {
    "classification": ("Label", lambda record, texts: record["probabilities"]),
    "multi-label": ("Label", lambda record, texts: record["probabilities"]),
    "regression": ("Number", lambda record, texts: record["value"]),
    "token-classification": ("HighlightedText", _words),
    "question-answering": ("HighlightedText", _span),
    "multiple-choice": ("Label", _choices),
}
