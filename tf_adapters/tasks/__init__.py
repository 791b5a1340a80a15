"""Named data sets, the user's own files, and metrics.

Nothing here imports TensorFlow, tensorflow_datasets, scikit-learn or SciPy
before it is needed: a mistake in a file or a name shows at once.
"""

from tf_adapters._installation import submodules_of
from tf_adapters.tasks.own_files import task_from_files
from tf_adapters.tasks.registry import load_task
from tf_adapters.tasks.rows import Rows, Task

__all__ = ["Rows", "Task", "load_task", "task_from_files"]

__getattr__ = submodules_of(__name__, sample_rows="rows", texts_from_files="own_files", without_labels="own_files")
