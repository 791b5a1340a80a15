"""`tf-adapters demo`."""

import importlib.util
import ipaddress
import warnings
from typing import Annotated

import typer

from tf_adapters.cli import options
from tf_adapters.cli.terminal import terminal
from tf_adapters.cli.trained import named_directories
from tf_adapters.errors import InputError


def demo(
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="DIRECTORY...",
            help="Adapter directory, or several on one encoder, each as `DIRECTORY` or `NAME=DIRECTORY`.",
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen at; `0.0.0.0` lets other machines in, and asks nobody who they are.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.")] = 7860,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser, too.")] = False,
    model: options.Source = None,
):
    """Serve a page on this machine: type a text, and see labels and probabilities.

    It has what the adapters read: a text or two, words to label, a question and its context, or choices. Several
    adapters share their encoder in memory, and whoever types chooses which of them answer. Nothing that is typed, and
    nothing else, is sent to another machine. The page is for trying; `tf-adapters export` is for serving.

    `tf-adapters demo adapters/rotten-tomatoes`

    `tf-adapters demo adapters/film spam=adapters/sms names=adapters/ner --port 8000`

    It needs Gradio: `pip install "tf_adapters[demo]"`.
    """
    named = named_directories(directories)

    from tf_adapters.serving.shared_encoder import SharedEncoder, read_tasks

    tasks = read_tasks(named)
    for task in tasks.values():
        if task.settings["text"] is None:
            raise InputError(f"{task.directory} was saved without text settings, so it reads no raw text.")
    if importlib.util.find_spec("gradio") is None:
        raise InputError('The page is made with Gradio, which is not installed: run `pip install "tf_adapters[demo]"`.')
    from tf_adapters.cli.demo_page import address_of, build_page, import_gradio, listen, server_of

    with listen(host, port) as listener:
        from tf_adapters.cli.quiet import import_tensorflow

        console = terminal(stderr=True)
        with console.status("Loading TensorFlow and Gradio ..."):
            import_tensorflow()
            import_gradio()
        # Gradio's own use of its dependencies is nothing that a user could change.
        warnings.filterwarnings("ignore", module=r"(gradio|starlette|fastapi|uvicorn)(\.|$)")
        from tf_adapters.cli.progress import counting

        with counting(console, "loading", total=len(tasks), unit="adapters") as advance:
            encoder = SharedEncoder(tasks, backbone=model, progress=advance)
        server = server_of(build_page(encoder))
        url = address_of(listener, host)
        if not _is_this_machine(host):
            console.print(f"{host} is not this machine alone: whoever reaches it can use the page.")
        print(f"The page is at {url} until you press Ctrl-C.", flush=True)
        if open_browser:
            import webbrowser

            webbrowser.open(url)
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            pass  # the usual end of a page


def _is_this_machine(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
