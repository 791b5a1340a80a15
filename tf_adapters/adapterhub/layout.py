"""Names of the files in a directory of `adapters` or PEFT."""

DESCRIPTIONS = {"adapter": "adapter_config.json", "fusion": "adapter_fusion_config.json"}
HEAD_DESCRIPTION = "head_config.json"
# What a directory holds -> its weights in either of the two formats.
FILES = {
    "adapter": ("adapter.safetensors", "pytorch_adapter.bin"),
    "fusion": ("model_adapter_fusion.safetensors", "pytorch_model_adapter_fusion.bin"),
    "head": ("model_head.safetensors", "pytorch_model_head.bin"),
    "peft": ("adapter_model.safetensors", "adapter_model.bin"),
}
