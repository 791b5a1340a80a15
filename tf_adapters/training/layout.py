"""Names inside an output directory while a run is under way."""

RESUME_FOLDER = ".resume"
LOG_FILE = "log.csv"
SEEDS_FILE = "seeds.json"
HEAD_FOLDER = "head"
