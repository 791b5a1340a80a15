"""Names inside an output directory while a run is under way."""

RESUME_FOLDER = ".resume"
STATE_FILE = "state.safetensors"  # in that folder
LOG_FILE = "log.csv"
SEEDS_FILE = "seeds.json"
HEAD_FOLDER = "head"
