"""`tf-adapters push`."""

import pathlib
from typing import Annotated, Optional

import typer

from tf_adapters.cli.command import option
from tf_adapters.cli.quiet import terminal


def push(
    directory: Annotated[pathlib.Path, typer.Argument(help="Adapter directory.")],
    repository: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="Repository on the HuggingFace hub; made if it is not there.")
    ],
    private: option(bool, "Make the repository one that only its owner may read.", "--private") = False,
    revision: option(Optional[str], "Branch to upload to, made if it is not there. Default: the main one.") = None,
    message: option(Optional[str], "Message of the commit.") = None,
    base_model: option(
        Optional[str],
        "Id of the encoder on the hub, for a directory that was trained on a folder of yours; `none` if the hub does "
        "not have it.",
    ) = None,
    license: option(Optional[str], "Licence of the adapter, as the hub spells it: `apache-2.0`, `mit`.") = None,
):
    """Upload an adapter directory to the HuggingFace hub, with its model card.

    The adapter's settings, weights and README.md go up in one commit, and nothing else that lies in the directory.
    The token is that of `hf auth login`, or in HF_TOKEN.

    `tf-adapters push adapters/film someone/film-adapter --license mit`

    `predict`, `evaluate`, `info`, `export` and `convert` take the id in place of a directory then.
    """
    from tf_adapters.saving.hub import push_adapter

    address = push_adapter(
        directory, repository, private=private, revision=revision, message=message, base_model=base_model,
        license=license,
    )  # fmt: skip
    given = repository if revision is None else f"{repository}@{revision}"
    console = terminal()
    console.print(f"Uploaded to {address}")
    console.print(
        f"Use it:\n  tf-adapters info {given}\n  tf-adapters predict {given} --input texts.csv", soft_wrap=True
    )
