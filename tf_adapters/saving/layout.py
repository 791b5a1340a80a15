"""Names of the files in an adapter directory."""

SETTINGS_FILE = "tf_adapters.json"
WEIGHTS_FILE = "adapter.safetensors"
CARD_FILE = "README.md"
# Where new weights lie until the settings that describe them are there.
NEXT_WEIGHTS_FILE = ".adapter.safetensors.next"
