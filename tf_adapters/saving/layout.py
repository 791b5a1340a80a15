"""Names of the files in an adapter directory."""

SETTINGS_FILE = "tf_adapters.json"
WEIGHTS_FILE = "adapter.safetensors"
CARD_FILE = "README.md"
