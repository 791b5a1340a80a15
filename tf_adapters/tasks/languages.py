"""Languages of multilingual tasks, and the groups over which cross-lingual results are averaged."""

import re

# ISO 639-1 codes of the languages in XTREME, in XNLI, and of the usual UD treebanks.
INDO_EUROPEAN = frozenset(
    "af be bg bn bs ca cs cy da de el en es fa fo fr ga gd gl gu hi hr hsb hy is it ku la lt lv mk mr nb ne nl nn no "
    "or pa pl pt ro ru sa sk sl sq sr sv tg uk ur".split()
)
OTHER_FAMILIES = frozenset(
    "ar az eu et fi he hu id ja jv ka kk kn ko ml mn ms mt my qu sw ta te th tl tr tt ug uz vi wo yo zh".split()
)


def language_of(task):
    """The language code in a task's name ("xnli/sw", "ud/fr_sequoia", "ner/wikiann-tr"), or None."""
    match = re.search(r"(?:^|[/_.-])([a-z]{2,3})(?:_[a-z]+)?$", task.lower())
    return match[1] if match and match[1] in INDO_EUROPEAN | OTHER_FAMILIES else None


def group_means(scores, *, source="en"):
    """Means over languages as He et al. 2021 report them (section 4, table 3).

    Args:
        scores: dict from language code to a float.
        source: code of the language that was trained on.

    Returns: dict: "all", "target" (all but the source language) and "distant" (those outside
        the Indo-European family), without groups that have no language.
    """
    groups = {
        "all": list(scores),
        "target": [language for language in scores if language != source],
        "distant": [language for language in scores if language not in INDO_EUROPEAN],
    }
    return {
        name: sum(scores[language] for language in languages) / len(languages)
        for name, languages in groups.items()
        if languages
    }
