"""The page of `tf-adapters demo`, made with Gradio, which is the extra `demo`."""

import errno
import logging
import os
import socket

from tf_adapters.errors import InputError

# Name of a field, as `Kind.served_texts` has it: its title, its lines, and what stands in it before anything is typed.
FIELDS = {
    "text": ("Text", 2, "Words are what spaces separate, where words are labelled."),
    "text_pair": ("Second text", 2, "What the text is compared with."),
    "question": ("Question", 1, "What the context answers."),
    "context": ("Context", 6, "A text that holds the answer."),
    "choices": ("Choices", 4, "One a line, at least two."),
}
MOST_CLASSES, MOST_ANSWERS = 20, 5
# A page may load nothing from elsewhere, whatever Gradio's own files name.
POLICY = (
    "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'self'"
)


def import_gradio():
    """The module `gradio`, which then sends nothing to anybody."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        import gradio
    except ImportError as error:
        raise InputError(
            f"The page is made with Gradio, and {error.name or error} is not installed: run `pip install "
            '"tf_adapters[demo]"`.'
        ) from None
    return gradio


def fields_of(task):
    """What a `SharedTask` reads, a tuple of names of `FIELDS`; of pairs the second follows the first."""
    from tf_adapters.kinds import get_kind

    return get_kind(task.kind).served_texts(task.about)


def answer_of(encoder, name, given):
    """One task's record for what was typed, a dict; of what cannot be answered it has an `error` alone.

    Args:
        encoder: `SharedEncoder`.
        name: str, the task.
        given: dict from the names of `FIELDS` to str.
    """
    names = fields_of(encoder.tasks[name])
    missing = [FIELDS[field][0].lower() for field in names if not (given.get(field) or "").strip()]
    if missing:
        return {"error": f"Fill in: {', '.join(missing)}."}
    texts = [given[field] for field in names]
    if not all(is_unicode(text) for text in texts):
        return {"error": "The text holds half of a surrogate pair, which is no character: remove it."}
    if "choices" in names:
        texts[1] = [line.strip() for line in texts[1].splitlines() if line.strip()]
        if len(texts[1]) < 2:
            return {"error": "Give at least two choices, one a line."}
    first, *second = texts
    try:
        (record,) = encoder.answer(name, [first], [second[0]] if second else None)
    except InputError as error:
        return {"error": str(error)}
    return record


def is_unicode(text):
    """Whether a str can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# What each kind shows: a function that makes its components, and one from a record and what was typed to their values.


def _label_parts(gr, name, heading=True):
    return [gr.Label(label=name, num_top_classes=MOST_CLASSES, show_heading=heading)]


def _label_values(record, given):
    return [record["probabilities"]]


def _several_parts(gr, name):
    return [gr.Textbox(label=name, interactive=False), *_label_parts(gr, "Probability of each label", heading=False)]


def _several_values(record, given):
    return [", ".join(record["labels"]) or "(none)", record["probabilities"]]


def _value_parts(gr, name):
    return [gr.Textbox(label=name, interactive=False)]


def _value_values(record, given):
    return [f"{record['value']:.4f}"]


def _word_parts(gr, name):
    return [
        gr.HighlightedText(label=name, combine_adjacent=False, show_legend=True),
        gr.Dataframe(label="Words", headers=["word", "label", "probability"], interactive=False),
    ]


def _word_values(record, given):
    words = list(zip(record["words"], record["labels"], record["probabilities"]))
    pieces = []
    for word, label, _ in words:
        pieces += [(word, None if label == "O" else label), (" ", None)]
    return [pieces[:-1], [[word, label, round(value, 4)] for word, label, value in words]]


def _span_parts(gr, name):
    return [
        gr.HighlightedText(label=name, combine_adjacent=False),
        gr.Dataframe(label="Best answers", headers=["answer", "probability"], interactive=False),
    ]


def _span_values(record, given):
    context, start, end = given["context"], record["start"], record["end"]
    pieces = [(context[:start], None), (context[start:end], "answer"), (context[end:], None)]
    best = [[one["answer"], round(one["probability"], 4)] for one in record["n_best"][:MOST_ANSWERS]]
    return [[piece for piece in pieces if piece[0]], best]


def _choice_values(record, given):
    choices = [line.strip() for line in given["choices"].splitlines() if line.strip()]
    # Numbered, because two choices may be the same words.
    return [
        {f"{number}. {text}": value for number, (text, value) in enumerate(zip(choices, record["probabilities"]), 1)}
    ]


# A new kind is a line here.
DISPLAYS = {
    "classification": (_label_parts, _label_values),
    "multi-label": (_several_parts, _several_values),
    "regression": (_value_parts, _value_values),
    "token-classification": (_word_parts, _word_values),
    "question-answering": (_span_parts, _span_values),
    "multiple-choice": (_label_parts, _choice_values),
}


def build_page(encoder):
    """A `gradio.Blocks` on which somebody types a text and sees what the adapters answer.

    Args:
        encoder: `SharedEncoder`.

    Returns: the page, whose endpoint `answer` takes the names of the adapters and then the texts, in the order of
        `FIELDS` as far as the adapters read them.
    """
    gr = import_gradio()
    names = list(encoder.tasks)
    reads = {name: fields_of(task) for name, task in encoder.tasks.items()}
    needed = [field for field in FIELDS if any(field in of_task for of_task in reads.values())]
    with gr.Blocks(title="tf-adapters demo", analytics_enabled=False) as page:
        gr.Markdown(f"# {'Adapters on one encoder' if len(names) > 1 else 'One adapter'}")
        chosen = gr.CheckboxGroup(names, value=names, label="Adapters that answer", visible=len(names) > 1)
        boxes = []
        for field in needed:
            title, lines, hint = FIELDS[field]
            boxes.append(gr.Textbox(label=title, lines=lines, placeholder=hint, elem_id=f"field-{field}"))
        button = gr.Button("Answer", variant="primary", elem_id="answer")
        panels = {name: _Panel(gr, name, encoder.tasks[name].kind) for name in names}

        def answer(asked, *texts):
            given = dict(zip(needed, texts))
            updates = []
            for name, panel in panels.items():
                record = answer_of(encoder, name, given) if name in asked else None
                updates += panel.updates(record, given)
            return updates

        def show_fields(asked):
            wanted = {field for name in asked for field in reads[name]}
            return [gr.update(visible=field in wanted) for field in needed]

        outputs = [part for panel in panels.values() for part in panel.outputs]
        for event, api in ((button.click, "answer"), *((box.submit, False) for box in boxes)):
            event(
                answer, [chosen, *boxes], outputs, concurrency_limit=1, concurrency_id="encoder",
                **({"api_name": api} if api else {"api_visibility": "private"}),
            )  # fmt: skip
        chosen.change(show_fields, chosen, boxes, api_visibility="private", queue=False)
    return page


class _Panel:
    """What one adapter says: a group that is there once it was asked, with an error in place of an answer."""

    def __init__(self, gr, name, kind):
        parts, self.values = DISPLAYS[kind]
        self.gr = gr
        with gr.Column(visible=False, elem_classes="panel") as group:
            self.error = gr.Textbox(label=name, interactive=False, visible=False, elem_classes="row-error")
            self.parts = parts(gr, name)
        self.outputs = [group, self.error, *self.parts]

    def updates(self, record, given):
        """What `outputs` become; `record` is None of an adapter that was not asked."""
        update = self.gr.update
        if record is None:
            return [update(visible=False)] * len(self.outputs)
        if record.get("error"):
            hidden = [update(visible=False) for _ in self.parts]
            return [update(visible=True), update(value=f"No answer: {record['error']}", visible=True), *hidden]
        values = [update(value=value, visible=True) for value in self.values(record, given)]
        return [update(visible=True), update(value="", visible=False), *values]


def listen(host, port):
    """A socket that listens at an address, before anything slow is done; port 0 takes a free one.

    Raises:
        InputError: the port is taken or not allowed, or the host is no address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InputError(f"--host {host} is no address of this machine: give 127.0.0.1, or leave it out.") from None
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except PermissionError:
        listener.close()
        raise InputError(f"--port {port} may not be used by you: give one above 1023.") from None
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"--port {port} of {host} is taken: give another, or 0 for a free one.") from None
        raise InputError(
            f"--host {host} is no address of this machine ({error.strerror}): give 127.0.0.1, or leave it out."
        ) from None
    return listener


def address_of(listener, host):
    """The URL of a page at a listening socket."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/"


def server_of(page):
    """A `uvicorn.Server` of a page; `run(sockets=[...])` serves until it is interrupted."""
    gr = import_gradio()
    import fastapi
    import uvicorn

    theme = gr.themes.Default(font=("system-ui", "sans-serif"), font_mono=("ui-monospace", "monospace"))
    app = gr.mount_gradio_app(
        fastapi.FastAPI(openapi_url=None), page, path="", theme=theme, footer_links=[], show_error=True,
        ssr_mode=False, pwa=False, enable_monitoring=False, mcp_server=False,
    )  # fmt: skip
    config = uvicorn.Config(
        _with_policy(app), log_level="error", access_log=False, timeout_graceful_shutdown=1, server_header=False
    )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets=None):
            # A browser that is still open holds a request, which ends here: no error of anybody.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            await super().shutdown(sockets)

    return Server(config)


def _with_policy(app):
    """The ASGI application with the header that keeps a browser from loading anything from elsewhere."""

    async def guarded(scope, receive, send):
        async def send_with_policy(message):
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"content-security-policy", POLICY.encode())]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, send_with_policy)

    return guarded
