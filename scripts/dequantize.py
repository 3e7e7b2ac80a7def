"""Convert a GGUF file to a float32 model folder that vLLM can load.

Run by the engines' environment (`make engines`), not by the project's::

    .venv-vllm/bin/python scripts/dequantize.py ~/.cache/cheapspec/smollm2-135m-q4_1.gguf FOLDER

Float32 because only there a model's scoring and decoding agree on every argmax; see the tests of
equality. An existing FOLDER is left alone: it gets its name only when it is whole.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main(source: Path, folder: Path) -> None:
    """Write ``source`` (one GGUF file) as float32 safetensors with its tokenizer into ``folder``."""
    if folder.is_dir():
        return
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(source.parent),
            gguf_file=source.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
        )
        model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name).save_pretrained(partial)
        if not folder.is_dir():
            os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
