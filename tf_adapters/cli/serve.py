"""`tf-adapters serve`: a bank of adapters as an application of Ray Serve, which is the extra `serve`."""

import contextlib
import functools
import importlib.util
import logging
import os
import re
import signal
import socket
from typing import Annotated, Optional

import typer

from tf_adapters.cli.command import option
from tf_adapters.cli.options import Source
from tf_adapters.cli.quiet import terminal
from tf_adapters.cli.trained import encoder_source, named_directories
from tf_adapters.errors import InputError
from tf_adapters.ranges import Real, Whole
from tf_adapters.serving.server import BANK, DOOR, Door, Replica, app_of, running
from tf_adapters.serving.shared_encoder import read_tasks

_change_option = functools.partial(option, panel="Changes")


def serve(
    directories: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="[NAME=]DIRECTORY...", help="Adapter directories of one encoder, each a task."),
    ] = None,
    add: _change_option(Optional[list[str]], "`NAME=DIRECTORY`: a task more for the server that runs.") = None,
    replace: _change_option(Optional[list[str]], "`NAME=DIRECTORY`: another adapter for a task of it.") = None,
    remove: _change_option(Optional[list[str]], "`NAME`: a task of it that goes.") = None,
    model: Source = None,
    host: option(
        str, "Address to listen at; `0.0.0.0` lets other machines in, and asks nobody who they are."
    ) = "127.0.0.1",
    port: option(int, "Port to listen at.", range=Whole(1, 65535)) = 8000,
    replicas: option(int, "Processes that answer, each with the whole bank.", range=Whole()) = 1,
    max_replicas: option(
        Optional[int], "Let Ray Serve start up to this many while there is much to answer.", range=Whole()
    ) = None,
    cores: option(int, "Cores of a replica.", range=Whole()) = 1,
    batch_size: option(int, "Most rows that a replica computes at once.") = 32,
    wait: option(
        float, "Milliseconds that a row waits for others to be computed with.", range=Real(at_least=0, at_most=1e4)
    ) = 2.0,
    separate: option(bool, "Give each task replicas of its own, in place of one bank for all.", "--separate") = False,
    storage: option(
        str,
        "How adapters are kept: `float32`, or `bfloat16` or `float16` in half the space.",
        values=("float32", "bfloat16", "float16"),
    ) = "float32",
):
    """Answer texts over HTTP: many tasks from one encoder, which come and go while it answers.

    `tf-adapters serve film=adapters/film spam=adapters/sms`

    `curl -d '{"task": "film", "texts": ["a quiet film"]}' http://127.0.0.1:8000/predict`

    TensorFlow Serving's REST interface is there too: `/v1/models/film:predict`. `/tasks` says what there is, `/health`
    whether it answers.

    In another terminal, also while it answers, on every replica:

    `tf-adapters serve --add ham=adapters/ham --replace film=adapters/film-2 --remove spam`

    It joins the Ray cluster that `ray start` made, or the one that RAY_ADDRESS names; without one it starts one on this
    machine. It needs Ray: `pip install "tf_adapters[serve]"`.
    """
    changes = bool(add or replace or remove)
    if bool(directories) == changes:
        raise InputError(
            "Give NAME=DIRECTORY to start a server, or --add, --replace and --remove to change the one that runs."
        )
    if max_replicas is not None and max_replicas < replicas:
        raise InputError(f"{{max_replicas}} must be at least --replicas {replicas}.", max_replicas=max_replicas)
    # Every process finds them, wherever it runs.
    added, replaced, named = (
        {name: os.path.abspath(path) for name, path in named_directories(given or ()).items()}
        for given in (add, replace, directories)
    )
    for one in (added, replaced, named):
        read_tasks(one)
    if importlib.util.find_spec("ray") is None:
        raise InputError('The server is Ray Serve, which is not installed: run `pip install "tf_adapters[serve]"`.')
    console = terminal(stderr=True)
    if changes:
        with console.status("Changing the server ..."):
            _connect(changes)
            tasks = _change(added, replaced, remove or [])
        print(f"The server has the tasks {', '.join(tasks)}.")
        return
    encoder = encoder_source(named, model)
    settings = {
        "encoder": os.path.abspath(encoder) if os.path.isdir(encoder) else str(encoder), "storage": storage,
        "batch_size": batch_size, "wait": wait / 1e3, "cores": cores, "replicas": replicas, "most": max_replicas,
        "separate": separate,
    }  # fmt: skip
    with console.status("Starting the server ..."):
        _connect(changes, host)
        _check_start(settings, named, host, port)
        with _stopped():
            _start(settings, named, host, port)
            print(f"{', '.join(named)}: at http://{host}:{port} until you press Ctrl-C.", flush=True)
            signal.pause()


def _connect(changes, host="127.0.0.1"):
    """Join the Ray cluster that there is, or start one on this machine."""
    # Of a cluster of this machine alone Ray's own ports stay on the loopback too; Ray has this for other systems.
    if host in ("127.0.0.1", "localhost"):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    import ray.serve

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        if changes:
            raise InputError(
                "No server runs here: start one by `tf-adapters serve NAME=DIRECTORY`, or name its Ray cluster by "
                "RAY_ADDRESS."
            ) from None
        ray.init(address="local", include_dashboard=False, **quiet)


@contextlib.contextmanager
def _stopped():
    """Take down what was started, when the user says so or something fails."""
    try:
        yield
    finally:
        import ray

        if ray.is_initialized():
            for name in [name for name in ray.serve.status().applications if name == DOOR or name.startswith(BANK)]:
                ray.serve.delete(name)
            ray.shutdown()


def _check_start(settings, named, host, port):
    import ray

    if DOOR in ray.serve.status().applications:
        raise InputError("A server runs in this Ray cluster: change it by --add, --replace and --remove.")
    has = ray.cluster_resources().get("CPU", 0)
    needs = settings["cores"] * settings["replicas"] * (len(named) if settings["separate"] else 1)
    if needs > has:
        raise InputError(
            f"--replicas {settings['replicas']} with --cores {settings['cores']}"
            f"{' for each task' * settings['separate']} needs {needs} cores, and the Ray cluster has {has:g}."
        )
    try:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((host, port))
    except OSError:
        raise InputError(
            f"There can be no server at --host {host} --port {port}: give an address of this machine, and a port that "
            "is free."
        ) from None


def _start(settings, named, host, port):
    from ray import serve

    serve.start(http_options={"host": host, "port": port})
    for state in _run(settings, {name: [path, 1] for name, path in named.items()}):
        for fault in state["faults"].values():
            raise InputError(fault["error"])
    door = serve.deployment(Door).options(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=1000)
    serve.run(door.bind(settings["separate"]), name=DOOR, route_prefix="/")


def _run(settings, tasks):
    """Run, or change, the applications of these tasks, one after the other; yields a replica's state of each."""
    from ray import serve

    separate, number = settings["separate"], {"num_replicas": settings["replicas"]}
    if settings["most"]:
        limits = {"min_replicas": settings["replicas"], "max_replicas": settings["most"]}
        number = {"autoscaling_config": {**limits, "target_ongoing_requests": 2 * settings["batch_size"]}}
    for name, group in {name: {name: tasks[name]} for name in tasks}.items() if separate else [("", tasks)]:
        replica = serve.deployment(Replica).options(
            user_config=group, max_ongoing_requests=1000, ray_actor_options={"num_cpus": settings["cores"]}, **number
        )
        try:
            handle = serve.run(replica.bind(settings), name=app_of(name, separate), route_prefix=None)
        except RuntimeError as error:
            said = re.findall(r"InputError: (.*)", str(error)) or str(error).strip().splitlines()[-1:]
            raise InputError(f"The server does not start: {said[-1]}") from None
        yield handle.state.remote().result()


def _change(added, replaced, removed):
    """Change the server that runs, and return the names of its tasks. What is refused changes nothing."""
    import ray
    from ray import serve

    # Two changes at once would each put back what the other changed: a name in the cluster is taken by one.
    try:
        turn = ray.remote(num_cpus=0)(type("Turn", (), {})).options(name="tf-adapters-change").remote()
    except ValueError:
        raise InputError("Another change of the server is under way: try again when it is done.") from None
    apps = running()
    if not apps:
        raise InputError("No server runs in this Ray cluster: start one by `tf-adapters serve NAME=DIRECTORY`.")
    states = [serve.get_app_handle(app).state.remote().result() for app in apps]
    settings, new = states[0]["settings"], {**added, **replaced}
    there = {name: task for state in states for part in ("tasks", "faults") for name, task in state[part].items()}
    for name in added:
        if name in there:
            raise InputError(f"--add {name}: the server has a task of that name; use --replace.")
    for name in [*replaced, *removed]:
        if name not in there:
            raise InputError(f"{name}: the server has no such task; it has {', '.join(there)}.")
    wanted = {name: [task["directory"], task["change"]] for name, task in there.items() if name not in removed}
    number = 1 + max(task["change"] for task in there.values())
    wanted |= {name: [path, number] for name, path in new.items()}
    if not wanted:
        raise InputError("The server would have no task: leave one, or stop it by Ctrl-C.")
    for name, path in new.items():
        error = serve.get_app_handle(apps[0]).check.remote(name, path).result()
        if error:
            raise InputError(f"{name}: {error}")
    for name in removed if settings["separate"] else ():
        serve.delete(app_of(name, True))
    for _ in _run(settings, {name: wanted[name] for name in new} if settings["separate"] else wanted):
        pass
    del turn
    return list(wanted)
