"""Adapter directories on the HuggingFace hub: found, fetched and uploaded; needs no TensorFlow.

The hub is where huggingface_hub looks for it (`HF_ENDPOINT`), with its token (`HF_TOKEN`, or the one that `hf auth
login` keeps) and its cache.
"""

import contextlib
import copy
import json
import os
import pathlib
import re
import tempfile
from typing import NamedTuple, Optional

from tf_adapters._types import PathLike
from tf_adapters.errors import NAME, InputError
from tf_adapters.paths import to_path
from tf_adapters.saving.model_card import model_card
from tf_adapters.saving.settings import CARD_FILE, SETTINGS_FILE, WEIGHTS_FILE, read_settings, weights_path

_ID = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[^@\s]+))?", re.ASCII)


class HubId(NamedTuple):
    """A repository on the hub, `owner/name`, and a branch, tag or commit of it, or None for the main branch."""

    repository: str
    revision: Optional[str]


def parse_id(text):
    """The `HubId` that `owner/name` or `owner/name@revision` stands for, or None if the text is no such id.

    Example:
    >>> parse_id("someone/film@v2")
    HubId(repository='someone/film', revision='v2')
    """
    found = _ID.fullmatch(text)
    return found and HubId(found["repository"], found["revision"])


@contextlib.contextmanager
def explained(repository):
    """Turn what huggingface_hub raises in the block into an `InputError` with its own message, on one line."""
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise InputError("huggingface_hub is not installed: run `pip install huggingface_hub`.") from None
    try:
        yield
    except InputError:
        raise
    # Errors of the protocol and the network are OSErrors, wrong ids ValueErrors, and the Rust client's RuntimeErrors.
    except (OSError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:500]
        token = " The token is in HF_TOKEN, or that of `hf auth login`." if re.search("40[13]", said) else ""
        raise InputError(f"The HuggingFace hub and {repository}: {said}{token}") from None


# With the name of other libraries' description, so that a reader can say what a repository holds instead.
FILES = (SETTINGS_FILE, WEIGHTS_FILE, CARD_FILE, "adapter_config.json")


def find_adapter(source, *, files=FILES, required=True):
    """The folder of an adapter directory: the one here, or the files of a repository on the hub.

    Args:
        source: path, or `owner/name` or `owner/name@revision` of a repository on the HuggingFace hub. What is on this
            machine by that name wins.
        files: names of the files that are fetched, or patterns (`"*/adapter_config.json"`).
        required: bool, whether a repository without any of them is refused.

    Returns: a `pathlib.Path`; of what is neither here nor such an id the path itself, which readers refuse. InputError
    where the hub has no such repository or does not give it.
    """
    path, wanted = to_path(source), parse_id(os.fspath(source))
    if wanted is None or os.path.lexists(path):
        return path
    try:
        with explained(wanted.repository):
            from huggingface_hub import snapshot_download

            found = snapshot_download(wanted.repository, revision=wanted.revision, allow_patterns=list(files))
        folder = pathlib.Path(found)  # in the hub's cache; the last part is the commit
    except InputError as error:
        raise InputError(f"{source}: there is no such directory. {error}") from None
    if (folder / SETTINGS_FILE).exists() and not (folder / WEIGHTS_FILE).exists():
        raise InputError(
            f"{source}: the hub's cache has no {WEIGHTS_FILE}: run it again with a network, or the file is lacking."
        )
    # A repository without any of the files has no folder in the cache.
    if required and not folder.is_dir():
        raise InputError(f"{source} is on the hub, and holds none of {', '.join(files)}: it is no adapter directory.")
    return folder


# What the aliases of `load_backbone` are called on the hub.
_ALIASES_ON_HUB = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}
NO_ENCODER = "none"
# Kind of task -> the hub's name for it.
_TASKS = {
    "classification": "text-classification",
    "multi-label": "text-classification",
    "regression": "text-classification",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
    "multiple-choice": "multiple-choice",
    "masked-lm": "fill-mask",
}


def push_adapter(
    directory: PathLike,
    repository: str,
    *,
    private: bool = False,
    revision: Optional[str] = None,
    message: Optional[str] = None,
    base_model: Optional[str] = None,
    license: Optional[str] = None,
    token: Optional[str] = None,
) -> str:
    """Upload an adapter directory to a repository on the HuggingFace hub, with its model card.

    The settings, the weights and README.md go up in one commit, and nothing else of the directory: the repository has
    all of it or what it had before. The repository is made if it is not there. Paths of this machine are left out of
    what is sent.

    Args:
        directory: path of an adapter directory.
        repository: str, `owner/name`.
        private: bool, whether only its owner may read it.
        revision: str or None, the branch, made if it is not there; None for the main one.
        message: str or None, of the commit.
        base_model: str or None, the encoder's id on the hub, from which `load_trained` of the repository takes it; None
            for the one that was trained on; `"none"` if the hub does not have it.
        license: str or None, as the hub spells it, such as `"apache-2.0"`; None for what README.md says, if anything.
        token: str or None; None for `HF_TOKEN`, or the one of `hf auth login`.

    Returns: the address of the commit.

    Raises:
        InputError: no adapter there, an encoder that is a folder of this machine, a public repository for `private`,
            what huggingface_hub says.

    Example: `push_adapter("adapters/film", "someone/film-adapter", license="mit")`
    """
    wanted = parse_id(repository) if isinstance(repository, str) else None
    if wanted is None or wanted.revision is not None:
        raise InputError(
            "{repository} must be OWNER/NAME, of letters, digits, '-', '_' and '.'.", repository=repository
        )
    directory = to_path(directory)
    settings = read_settings(directory)
    weights = weights_path(directory, settings)
    public, encoder = _public(settings, directory, base_model)
    card = _card(directory, settings, public, repository, encoder, license)
    with explained(repository), tempfile.TemporaryDirectory() as folder:
        from huggingface_hub import HfApi

        hub, sent = HfApi(token=token, library_name="tf_adapters"), pathlib.Path(folder)
        (sent / CARD_FILE).write_text(card, encoding="utf-8")
        (sent / SETTINGS_FILE).write_text(json.dumps(public, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (sent / WEIGHTS_FILE).symlink_to(weights.resolve())
        hub.create_repo(repository, private=private or None, exist_ok=True)
        # Of a repository that is there, the hub leaves it as it is.
        if private and not hub.repo_info(repository).private:
            raise InputError(f"{{private}}: {repository} is on the hub, and public: change that first.", private=True)
        if revision is not None:
            hub.create_branch(repository, branch=revision, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=repository, folder_path=folder, revision=revision,
            commit_message=message or f"Upload {directory.resolve().name} by tf_adapters",
        )  # fmt: skip
    return str(commit.commit_url)


def _card(directory, settings, public, repository, base_model, license):
    """The directory's README.md, without paths of this machine and with what the hub indexes; what a person wrote into
    its metadata stays."""
    card = directory / CARD_FILE
    try:
        text = card.read_text(encoding="utf-8") if card.exists() else model_card(settings)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{card} cannot be read ({error}): restore it, or remove it.") from None
    # What stands there for an encoder or an adapter.
    pairs = [(settings["backbone"]["source"], public["backbone"]["source"] or "an encoder that is not on the hub")]
    if settings.get("pretrained_adapter"):
        pairs.append((settings["pretrained_adapter"]["directory"], public["pretrained_adapter"]["directory"]))
    for old, new in pairs:
        # Not inside another word or name.
        text = re.sub(rf"(?<![\w./-]){re.escape(old)}(?![\w-])", lambda _, new=new: new, text) if old else text
    with explained(repository):
        from huggingface_hub import ModelCard

        try:
            # A card without metadata is one for which ModelCard would print a warning.
            made = ModelCard(text if text.startswith("---") else f"---\n{{}}\n---\n{text}")
        except Exception as error:  # of the parser that huggingface_hub has
            raise InputError(
                f"The metadata at the top of README.md cannot be read ({str(error).splitlines()[0][:200]}): correct "
                "it, or remove README.md."
            ) from None
    data = made.data
    data.library_name = "tf-adapters"
    data.pipeline_tag = data.pipeline_tag or _TASKS.get((settings["task"] or {}).get("kind"))
    tags = [data.tags] if isinstance(data.tags, str) else data.tags or []
    data.tags = list(dict.fromkeys([*tags, "adapter", "tensorflow", "keras", settings["backbone"]["model_type"]]))
    data.base_model, data.license = base_model or data.base_model, license or data.license
    made.text = made.text.replace("DIRECTORY", repository)
    return str(made)


def _public(settings, directory, base_model):
    """The settings without paths of this machine, and the encoder's id on the hub or None."""
    settings = copy.deepcopy(settings)
    backbone, pretrained = settings["backbone"], settings.get("pretrained_adapter")
    source = backbone["source"]
    if base_model is not None:
        backbone["source"] = None if base_model == NO_ENCODER else base_model
    # Some ids have no owner.
    elif source not in _ALIASES_ON_HUB and (
        source is None or os.path.exists(source) or (parse_id(source) is None and "/" in source)
    ):
        raise InputError(
            f"{directory} was trained on {source or 'an encoder of nowhere'}, which others lack: give its id on the "
            f"hub by {{base_model}}, or '{NO_ENCODER}'.",
            base_model=NAME,
        )
    if pretrained and not parse_id(pretrained["directory"]):
        pretrained["directory"] = pathlib.Path(pretrained["directory"]).name
    name = backbone["source"]
    return settings, _ALIASES_ON_HUB.get(name, name and name.partition("@")[0])
