"""The arms that run on PyTorch: AdapterHub's `adapters`, full fine-tuning, PEFT's LoRA; started by step.py.

It imports nothing of tf_adapters. What trains is made equal to the TensorFlow arms: two adapters per block at the same
bottleneck with exact GELU, the blocks' LayerNorms and the classifier, and the pooler where pretraining left it
untrained. LoRA has its matrices in place of adapters and LayerNorms.
"""

import contextlib

import torch

from benchmarks.peers import worker_protocol
from benchmarks.peers.worker_protocol import ALPHA, RANK, TARGETS, TASKS, names_of
from benchmarks.result import installed_versions


class TorchArm(worker_protocol.Arm):
    """`torch-adapters`, `torch-full`, `torch-lora`, `torch-forward-adapters`, or `torch-routed-lora`; the first two by
    `torch.compile` too, `torch-compiled-adapters`, or with weights in bfloat16, `torch-bfloat16-adapters`."""

    def __init__(self, settings):
        self.name = settings["arm"].replace("compiled-", "").replace("bfloat16-", "")
        self.device = torch.device(settings.get("device", "cpu"))
        self.trains = not self.name.startswith(("torch-forward", "torch-routed"))
        torch.set_num_threads(settings["threads"])
        torch.manual_seed(settings["seed"])
        self.model = _build(self.name, settings).to(self.device)
        self.model.train(self.trains)
        self.batches = _read_batches(settings["batches"], self.device)
        self.batch_count = len(self.batches)
        if self.name == "torch-routed-lora":
            # PEFT computes each adapter's rows by themselves.
            for inputs, labels in self.batches:
                inputs["adapter_names"] = names_of(len(labels))
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.trained_parameters = sum(parameter.numel() for parameter in trained) if self.trains else 0
        self.optimizer = torch.optim.Adam(trained, lr=settings["learning_rate"]) if self.trains else None
        self.bfloat16 = settings["precision"] == "mixed_bfloat16"
        self.details = {
            "versions": installed_versions("torch", "adapters", "peft", "transformers", "numpy"),
            "attention": getattr(self.model.config, "_attn_implementation", None),
        }
        if "bfloat16" in settings["arm"]:
            self.model.to(torch.bfloat16)
            self.bfloat16 = False
        if "compiled" in settings["arm"]:
            self.model = torch.compile(self.model)
        if self.name == "torch-routed-lora":
            self.details |= {"resident": TASKS, "logits": self._logits(0).tolist()}

    def step(self, index):
        inputs, labels = self.batches[index]
        if not self.trains:
            self._logits(index)
            return
        with self._precision():
            logits = self.model(**inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def _logits(self, index):
        with torch.inference_mode(), self._precision():
            return self.model(**self.batches[index][0]).logits.float().numpy()

    def save(self, directory):
        if self.name == "torch-adapters":
            self.model.save_adapter(directory, "benchmark", with_head=True)
        elif self.trains:
            self.model.save_pretrained(directory)

    def _precision(self):
        return torch.autocast(self.device.type, torch.bfloat16) if self.bfloat16 else contextlib.nullcontext()


def _build(name, settings):
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(settings["directory"], num_labels=2)
    bert = model.bert
    pooler_is_untrained = not bert.pooler.dense.bias.any() and bert.encoder.layer[0].output.dense.bias.any()
    if name.endswith("adapters"):
        import adapters

        adapters.init(model)
        factor = model.config.hidden_size / settings["bottleneck"]
        config = adapters.DoubleSeqBnConfig(reduction_factor=factor, non_linearity="gelu")
        model.add_adapter("benchmark", config=config)
        model.train_adapter("benchmark")
        for key, parameter in model.named_parameters():
            if "encoder.layer" in key and "LayerNorm" in key:
                parameter.requires_grad = True
    elif name == "torch-lora":
        import peft

        model = peft.get_peft_model(model, _lora_config())
    elif name == "torch-routed-lora":
        import peft

        names = names_of(TASKS)
        model = peft.get_peft_model(model, _lora_config(), adapter_name=names[0])
        for number, task in enumerate(names):
            if number:
                model.add_adapter(task, _lora_config())
            _assign(bert, model.base_model.model.classifier, task, number)
    if name in ("torch-adapters", "torch-lora") and pooler_is_untrained:
        bert.pooler.requires_grad_(True)
    return model


def _lora_config():
    import peft

    settings = {"r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "target_modules": list(TARGETS)}
    return peft.LoraConfig(task_type="SEQ_CLS", **settings)


@torch.no_grad()
def _assign(bert, classifier, name, number):
    """Give the LoRA of a name, and its classifier, the weights of a task."""
    sites, (kernel, bias) = worker_protocol.task_weights(number, bert.config.num_hidden_layers, bert.config.hidden_size)
    for (block, target), factors in sites.items():
        layer = getattr(bert.encoder.layer[block].attention.self, target)
        for matrices, values in zip((layer.lora_A, layer.lora_B), factors):
            matrices[name].weight.copy_(torch.from_numpy(values.T))
    own = classifier.modules_to_save[name]
    own.weight.copy_(torch.from_numpy(kernel.T))
    own.bias.copy_(torch.from_numpy(bias))


def _read_batches(path, device):
    batches = []
    for arrays in worker_protocol.read_batches(path):
        ids, mask, labels = (torch.from_numpy(array).long().to(device) for array in arrays)
        batches.append(({"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}, labels))
    return batches


def main():
    worker_protocol.serve(TorchArm)
