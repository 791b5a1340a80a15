"""Runs a study into a folder."""

import importlib.util

from tf_adapters.errors import NAME, InputError
from tf_adapters.paths import to_path
from tf_adapters.studies.figure import check_matplotlib
from tf_adapters.studies.lab import STUDY_FILE, Lab


def run(study, output, *, resume=False, observer=None):
    """Measure what is missing of a study, and write its values, summary and figure.

    Args:
        study: `Study`, such as `Ablation(directories=("adapters/cola",))`.
        output: path of the study's folder: `values.csv` has each value, `summary.json` what they come to, `NAME.png`
            and `NAME.svg` the figure.
        resume: bool, go on with what the folder holds; more seeds, tasks or rates than before are added to it.
        observer: `studies.lab.Observer` or None.

    Returns: the summary, a dict.

    Raises:
        InputError: the folder holds another study, or options do not fit what is there.
        studies.lab.Stopped: a signal came; `resume` goes on.

    Example:
    >>> from tf_adapters.studies import Ablation
    >>> summary = run(Ablation(directories=("adapters/rotten-tomatoes",)), "studies/ablation")
    """
    check_matplotlib()
    for package in study.packages:
        if importlib.util.find_spec(package) is None:
            raise InputError(f"The study {study.name} needs the package {package}: run `pip install {package}`.")
    output = to_path(output)
    if not resume and (output / STUDY_FILE).exists():
        raise InputError("{output} holds a study: go on with it by {resume}, or give another folder.",
                         output=output, resume=NAME)  # fmt: skip
    is_new = not (output / STUDY_FILE).exists()
    lab = Lab(output, study, resume=resume, observer=observer)
    try:
        study.measure(lab)
    except InputError:
        if is_new and not lab.values:
            # Refused before there is anything to go on with: the folder is free again.
            lab.discard()
        raise
    return lab.finish()
