"""`tf-adapters serve`: a bank of adapters as an application of Ray Serve, which is the extra `serve`."""

import importlib.util
import logging
import os
import re
import signal
import socket
from typing import Optional

from tf_adapters.cli.command import argument, option
from tf_adapters.cli.directories import encoder_source, named_directories
from tf_adapters.cli.options import Source
from tf_adapters.cli.quiet import terminal
from tf_adapters.errors import InputError
from tf_adapters.ranges import Real, Whole
from tf_adapters.saving.settings import read_settings
from tf_adapters.serving.server import DOOR, SOURCE, Door, Replica, app_of, running
from tf_adapters.serving.shared_encoder import read_tasks
from tf_adapters.serving.versions import STORAGES

_NONE_RUNS = "No server runs here: start one by `tf-adapters serve NAME=DIRECTORY`, or name its cluster by RAY_ADDRESS."


def serve(
    directories: argument(
        Optional[list[str]], "Adapter directories of one encoder, each a task.", "[NAME=]DIRECTORY..."
    ) = None,
    add: option(Optional[list[str]], "`NAME=DIRECTORY`: a task more for the server that runs.", panel="Changes") = None,
    replace: option(Optional[list[str]], "`NAME=DIRECTORY`: another adapter for a task of it.", panel="Changes") = None,
    remove: option(Optional[list[str]], "`NAME`: a task of it that goes.", panel="Changes") = None,
    model: Source = None,
    host: option(str, "Address to listen at; `0.0.0.0` lets other machines in, whoever they are.") = "127.0.0.1",
    port: option(int, "Port to listen at.", range=Whole(1, 65535)) = 8000,
    replicas: option(int, "Processes that answer, each with the whole bank.", range=Whole()) = 1,
    max_replicas: option(Optional[int], "Most of them, while there is much to answer.", range=Whole()) = None,
    cores: option(int, "Cores of a replica.", range=Whole()) = 1,
    batch_size: option(int, "Most rows that a replica computes at once.") = 32,
    wait: option(float, "Milliseconds that a row waits for others.", range=Real(at_least=0, at_most=1e4)) = 2.0,
    separate: option(bool, "Give each task replicas of its own, in place of one bank for all.", "--separate") = False,
    storage: option(str, "How adapters are kept: `float32`, or the others in half.", values=STORAGES) = "float32",
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
        raise InputError("Give NAME=DIRECTORY to start a server, or --add, --replace and --remove to change one.")
    if replicas > (max_replicas or replicas):
        raise InputError(f"{{max_replicas}} must be at least --replicas {replicas}.", max_replicas=max_replicas)
    # Every process finds them, wherever it runs.
    added, replaced, named = (
        {name: os.path.abspath(path) for name, path in named_directories(given or ()).items()}
        for given in (add, replace, directories)
    )
    for one in (added, replaced, named):
        read_tasks(one, heads_alone=True)
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
        # Containers and services end by this; Ray's own handler would leave the applications to a cluster.
        signal.signal(signal.SIGTERM, _end)
        if running():
            raise InputError("A server runs in this Ray cluster: change it by --add, --replace and --remove.")
        try:
            _start(settings, named, host, port)
            _say_where_metrics_are()
            print(f"{', '.join(named)}: at http://{host}:{port} until you press Ctrl-C.", flush=True)
            signal.pause()
        finally:
            import ray

            for name in [name for name in ray.serve.status().applications if name.startswith(DOOR)]:
                ray.serve.delete(name)
            ray.shutdown()


def _end(number, frame):
    signal.signal(number, signal.SIG_IGN)  # A second one would leave applications to the cluster.
    raise KeyboardInterrupt


def _connect(changes, host="127.0.0.1"):
    """Join the Ray cluster that there is, or start one on this machine."""
    # Of a cluster of this machine alone Ray's own ports stay on the loopback too; Ray has this for other systems.
    if host in ("127.0.0.1", "localhost"):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    import ray.serve
    from ray._private.services import find_gcs_addresses

    # Of several Ray takes whichever comes first.
    if not os.environ.get("RAY_ADDRESS") and len(found := find_gcs_addresses()) > 1:
        raise InputError(f"Several Ray clusters run here: name one by RAY_ADDRESS, {' or '.join(sorted(found))}.")
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        if changes:
            raise InputError(_NONE_RUNS) from None
        ray.init(address="local", include_dashboard=False, **quiet)


def _start(settings, named, host, port):
    from ray import serve

    separate = settings["separate"]
    _check_cores(settings, len(named) if separate else 1)
    try:
        socket.create_server((host, port)).close()
    except OSError:
        raise InputError(f"--host {host} --port {port}: give an address of this machine and a free port.") from None
    serve.start(proxy_location="HeadOnly", http_options={"host": host, "port": port})
    for state in _run(settings, {name: _source(path, 1) for name, path in named.items()}):
        for fault in state["faults"].values():
            raise InputError(fault["error"])
    # Where HTTP is read, so that no other machine takes requests with it when it leaves.
    place = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}
    door = serve.deployment(Door).options(ray_actor_options=place, max_ongoing_requests=1000)
    serve.run(door.bind(separate), name=DOOR, route_prefix="/")


def _check_cores(settings, applications):
    """Refuse replicas that Ray would not start, and of which it would say nothing."""
    import ray

    cores, replicas, free = settings["cores"], settings["replicas"], ray.available_resources().get("CPU", 0)
    if (needs := cores * replicas * applications) > free:
        what = f"--replicas {replicas} with --cores {cores}{' for each task' * settings['separate']}"
        fewer = "; one bank of all tasks, without --separate, needs fewer" * settings["separate"]
        raise InputError(f"{what} needs {needs} cores, and the Ray cluster has {free:g} free{fewer}.")


def _say_where_metrics_are():
    import ray

    nodes = [f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in ray.nodes() if node["Alive"]]
    print(f"Metrics for Prometheus: {', '.join(f'http://{node}/metrics' for node in nodes)}")


def _source(path, change):
    """What a replica reads of a task, by `SOURCE`: each must find the same weights there, whenever it starts."""
    return [path, change, read_settings(path)["weights"]["sha256"]]


def _run(settings, tasks):
    """Run, or change, the applications of these tasks, one after the other; yields a replica's state of each."""
    from ray import serve

    separate, number = settings["separate"], {"num_replicas": settings["replicas"]}
    if settings["most"]:
        limits = {"min_replicas": settings["replicas"], "max_replicas": settings["most"]}
        number = {"autoscaling_config": {**limits, "target_ongoing_requests": 2 * settings["batch_size"]}}
    for name, group in {name: {name: tasks[name]} for name in tasks}.items() if separate else [("", tasks)]:
        # Of one version: Ray Serve makes up another one for each change, and starts every replica again.
        replica = serve.deployment(Replica).options(
            user_config=group, max_ongoing_requests=1000, ray_actor_options={"num_cpus": settings["cores"]}, **number,
            version="1", _internal=True,
        )  # fmt: skip
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
        raise InputError(_NONE_RUNS)
    try:
        states = [serve.get_app_handle(app).state.remote().result(timeout_s=60) for app in apps]
    except TimeoutError:
        raise InputError(
            "A replica has not answered for a minute, and nothing is changed: Ray's log says why."
        ) from None
    settings, new = states[0]["settings"], {**added, **replaced}
    there = {name: task for state in states for part in ("tasks", "faults") for name, task in state[part].items()}
    for name in (name for name in added if name in there):
        raise InputError(f"--add {name}: the server has a task of that name; use --replace.")
    for name in (name for name in removed if name in new):
        raise InputError(f"--remove {name}: it is given another adapter in the same change; leave one of them out.")
    for name in (name for name in [*replaced, *removed] if name not in there):
        raise InputError(f"{name}: the server has no such task; it has {', '.join(there)}.")
    wanted = {name: [task[key] for key in SOURCE] for name, task in there.items() if name not in removed}
    number = 1 + max(task["change"] for task in there.values())
    wanted |= {name: _source(path, number) for name, path in new.items()}
    if not wanted:
        raise InputError("The server would have no task: leave one, or stop it by Ctrl-C.")
    for name, path in new.items():
        if error := serve.get_app_handle(apps[0]).check.remote(name, path).result():
            raise InputError(f"{name}: {error}")
    if settings["separate"]:
        _check_cores(settings, len(new.keys() - there.keys()))
    list(_run(settings, {name: wanted[name] for name in new} if settings["separate"] else wanted))
    for name in removed if settings["separate"] else ():
        serve.delete(app_of(name, True))
    del turn
    return list(wanted)
