"""`adapters` on PyTorch behind Ray Serve, asked as `tf-adapters serve` is; serving.py starts it.

A batch's rows are ordered by task, so that `BatchSplit` computes those of all tasks in one pass of the encoder.
"""

import asyncio
import itertools
import json
import signal
import sys


class TorchReplica:
    """Answers `POST /predict` by tasks of random adapters and heads; it imports nothing of tf_adapters."""

    def __init__(self, encoder, tasks, bottleneck):
        import adapters
        import torch
        from ray import serve
        from transformers import AutoTokenizer, BertModel

        torch.manual_seed(0)
        # A thread, a batch's rows, and how long a row waits are as a replica of `tf-adapters serve` has them.
        torch.set_num_threads(1)
        self._tokenizer = AutoTokenizer.from_pretrained(encoder)
        self._model = BertModel.from_pretrained(encoder)
        adapters.init(self._model)
        hidden, self._names = self._model.config.hidden_size, [f"task-{number}" for number in range(tasks)]
        config = adapters.DoubleSeqBnConfig(reduction_factor=hidden / bottleneck, non_linearity="gelu")
        for name in self._names:
            self._model.add_adapter(name, config=config)
        self._model.eval()
        self._heads = torch.randn(tasks, hidden, 2)

        @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.002)
        async def batched(rows):
            return await asyncio.to_thread(self.answers, rows)

        self._answer = batched

    async def __call__(self, request):
        body = await request.json()
        return {"answers": await asyncio.gather(*map(self._answer, zip(body["task"], body["texts"])))}

    def answers(self, rows):
        """A dict with the probabilities of each row, a pair of task and text."""
        import torch
        from adapters.composition import BatchSplit

        order = sorted(range(len(rows)), key=lambda number: rows[number][0])
        names, texts = zip(*(rows[number] for number in order))
        groups = {name: len([*group]) for name, group in itertools.groupby(names)}
        one, *others = groups
        self._model.set_active_adapters(BatchSplit(*groups, batch_sizes=[*groups.values()]) if others else one)
        inputs = self._tokenizer([*texts], padding=True, truncation=True, max_length=128, return_tensors="pt")
        with torch.inference_mode():
            heads = self._heads[[self._names.index(name) for name in names]]
            found = torch.einsum("rh,rho->ro", self._model(**inputs).pooler_output, heads).softmax(-1).tolist()
        answers = dict(zip(order, found))
        return [{"probabilities": dict(zip("ab", answers[number]))} for number in range(len(rows))]


def main():
    """Serve until Ctrl-C; the arguments are those of `TorchReplica` and `replicas` as JSON, and `--port=PORT`."""
    import ray
    from ray import serve

    settings, port = json.loads(sys.argv[1]), int(sys.argv[2].partition("=")[2])
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    options = {"num_replicas": settings.pop("replicas"), "max_ongoing_requests": 1000}
    serve.run(serve.deployment(TorchReplica).options(**options).bind(**settings), route_prefix="/predict")
    print(f"At http://127.0.0.1:{port} until you press Ctrl-C.", flush=True)
    signal.pause()
