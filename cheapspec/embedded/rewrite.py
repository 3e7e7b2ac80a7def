"""Derives weights: every matrix as F16, and, for a weaker draft, some transformer layers left out.

One small file thus gives a target and drafts that agree with it more or less often, all with the
same tokenizer and chat template: a dial of acceptance for demo and tests. Norms stay F32, as in
llama.cpp's own F16 files. Nothing but the format and the layers is changed. Reading, dequantizing
and writing is the ``gguf`` package's (llama.cpp's own, pure Python).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

from cheapspec.errors import CheapspecError

__all__ = ["rewrite"]

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_SKIPPED = {"general.architecture", "general.quantization_version"}  # the writer's own; no longer true


def rewrite(
    source: Path, target: Path, drop: Collection[int] = (), progress: Callable[[float], None] | None = None
) -> None:
    """Write ``source`` (any GGUF of one file) to ``target`` as F16, without the layers ``drop`` (0-based).

    Remaining layers are numbered anew without gaps. ``progress`` is told the share done.

    :raises CheapspecError: the extra ``[embedded]`` is not installed.
    """
    try:
        import gguf
        import numpy as np
    except ImportError as missing:
        raise CheapspecError("Rewriting weights needs `pip install 'cheapspec[embedded]'`.") from missing

    reader = gguf.GGUFReader(source)
    arch = str(reader.fields["general.architecture"].contents())
    layers = int(reader.fields[f"{arch}.block_count"].contents())
    kept = [layer for layer in range(layers) if layer not in drop]
    number = {old: new for new, old in enumerate(kept)}
    writer = gguf.GGUFWriter(target, arch)
    changed = {f"{arch}.block_count": len(kept), "general.file_type": int(gguf.LlamaFileType.MOSTLY_F16)}
    for key, entry in reader.fields.items():
        if key.startswith("GGUF.") or key in _SKIPPED:
            continue
        item_type = entry.types[-1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, changed.get(key, entry.contents()), entry.types[0], item_type)

    renamed = [(name, tensor) for tensor in reader.tensors if (name := _renamed(tensor.name, number)) is not None]
    for name, tensor in renamed:
        if len(tensor.shape) == 1:
            writer.add_tensor_info(name, tensor.data.shape, np.dtype(np.float32), tensor.data.size * 4)
        else:
            shape = [int(side) for side in reversed(tensor.shape)]
            writer.add_tensor_info(name, shape, np.dtype(np.float16), tensor.n_elements * 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for done, (_, tensor) in enumerate(renamed):
        # One tensor at a time, so that memory never holds the whole model.
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.write_tensor_data(values.astype(np.float32 if len(tensor.shape) == 1 else np.float16))
        if progress is not None:
            progress((done + 1) / len(renamed))
    writer.close()


def _renamed(name: str, number: dict[int, int]) -> str | None:
    """The tensor's name with its layer's new number; ``None`` when the layer is left out."""
    found = _LAYER.fullmatch(name)
    if found is None:
        return name
    new = number.get(int(found[1]))
    return None if new is None else f"blk.{new}.{found[2]}"
