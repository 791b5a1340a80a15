"""What the list of tasks says of each."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class About:
    """A named task in a line.

    Attributes:
        kind, metric: as in `Task`.
        origin: str, where its rows come from.
        run_on_real_rows: bool, whether this package was run on the published rows, or only on
            a small file in their layout.
    """

    kind: str
    metric: str
    origin: str
    run_on_real_rows: bool
