# From a clone to a result. Needs python3 (3.11 or later), a C++20 compiler and make; everything else is installed into
# .venv, and everything built goes to build/. Stamp files in .venv say what has been done, so that a second run does
# only what has changed.

PYTHON ?= python3
FUZZ_RUNS ?= 5000000
# Seconds by the clock that one input may take: more where other programs want the processors.
FUZZ_TIMEOUT ?= 10
# WERROR=ON takes warnings for errors.
WERROR ?= OFF
# CCACHE= builds without ccache where it is installed. ccache must be told that it may look at precompiled headers.
CCACHE ?= $(shell command -v ccache)
ifneq ($(CCACHE),)
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(CCACHE)
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime
endif

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CMAKE := $(BIN)/cmake
CTEST := $(BIN)/ctest
PINS := third_party/requirements
# The library, its tests and the wheel are built in one tree.
TREE := build/release

SOURCES := $(shell find cpp python -type f -not -path '*/__pycache__/*') CMakeLists.txt pyproject.toml README.md LICENSE
CXX_FILES := $(shell find cpp tests benchmarks \( -name '*.h' -o -name '*.cc' \))
FUZZ_TARGETS := $(basename $(notdir $(wildcard tests/fuzz/fuzz_*.cc)))

.PHONY: demo test test-cpp test-python test-browser interop interop-burn bench bench-cli bench-distributed bench-paging \
        bench-small soak sanitize lint format fuzz wheel test-wheel test-torch release-check clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/python examples/quickstart.py

test: test-cpp test-python

test-cpp: $(VENV)/.installed
	$(CMAKE) --build $(TREE)
	$(CTEST) --test-dir $(TREE) --output-on-failure

test-python: $(VENV)/.installed $(VENV)/.test
	$(BIN)/python -m pytest

# Pages in the system's Chromium. `make test` runs these tests, too, where playwright and Chromium are installed.
test-browser: $(VENV)/.installed $(VENV)/.test $(VENV)/.browser
	WEIGHTSTORE_BROWSER=required WEIGHTSTORE_SCREENSHOTS=build/screenshots $(BIN)/python -m pytest tests/browser

# Other people's programs on this library; fetches them from the package index. tests/interop says what is compared.
INTEROP := build/interop
INTEROP_ENVIRONMENTS := transformers5 transformers4 frameworks
interop: $(VENV)/.installed $(INTEROP_ENVIRONMENTS:%=$(INTEROP)/%/.ready)
	$(BIN)/python tests/interop/run_reference_tests.py $(INTEROP)/safetensors-0.8.0.tar.gz
	$(BIN)/python tests/interop/run_clients.py $(INTEROP)

# Kills a training loop at random moments, and looks at what each kill left. `make test` does it 15 times.
soak: $(VENV)/.installed $(VENV)/.test
	$(BIN)/python tests/support/killed_runs.py 300

# Exchanges files with programs of Burn, which cargo builds into build/interop-burn. The first build takes many minutes.
interop-burn: $(VENV)/.installed $(VENV)/.test
	$(BIN)/python -m pytest -s -rs tests/interop/burn/both_ways.py

bench: $(VENV)/.installed $(VENV)/.test $(VENV)/.bench build/bench/build.ninja bench-small
	$(CMAKE) --build build/bench
	build/bench/benchmarks/cpp/core_bench
	$(BIN)/python benchmarks/python/run.py
	$(BIN)/python benchmarks/python/saver.py
	$(BIN)/python benchmarks/python/pager.py
	$(BIN)/python benchmarks/python/cli.py

bench-cli: $(VENV)/.installed
	$(BIN)/python benchmarks/python/cli.py

# Many small tensors, in time and in instructions; the second needs valgrind.
bench-small: $(VENV)/.installed $(VENV)/.test
	$(BIN)/python benchmarks/python/small.py
	$(BIN)/python benchmarks/python/many_names.py
	@if command -v valgrind > /dev/null; then $(BIN)/python benchmarks/python/instructions.py; \
	else echo "there is no valgrind: instructions are not counted"; fi

# Models larger than memory. Takes some minutes and 2 GB of disk; needs the right to make a control group for its limit.
bench-paging: $(VENV)/.installed $(VENV)/.test $(VENV)/.bench
	$(BIN)/python benchmarks/python/paging.py

# Several ranks of torch.distributed, 4 GB: takes some 30 minutes, and 16 GB of memory.
bench-distributed: $(VENV)/.installed $(VENV)/.test
	$(BIN)/python benchmarks/python/distributed_plan.py
	$(BIN)/python benchmarks/python/distributed.py

# A randomized address space can collide with ThreadSanitizer's shadow memory.
NO_ASLR := $(shell setarch -R true 2>/dev/null && echo setarch -R)
sanitize: build/asan/build.ninja build/tsan/build.ninja
	$(CMAKE) --build build/asan
	$(CTEST) --test-dir build/asan --output-on-failure
	$(CMAKE) --build build/tsan
	$(NO_ASLR) $(CTEST) --test-dir build/tsan --output-on-failure

# ---- wheels; docs/packaging.md ------------------------------------------------------------------------------------------

# PYTHONS="3.11 3.12 3.13" makes a wheel for each; TORCH="2.12 2.13" are the versions of torch that they have libraries for. Torch
# is fetched where it is not installed here.
PYTHONS ?= $(PYTHON)
TORCH ?= 2.13
wheel: $(VENV)/.run
	$(BIN)/python packaging/make_wheel.py --torch "$(TORCH)" $(PYTHONS:%=--python %)

# Installs the wheels in dist/ as users do. Fetches torch: several GB.
OTHER_TORCH ?= 2.14
test-wheel: $(VENV)/.build
	$(BIN)/python packaging/test_wheel.py $(PYTHONS:%=--python %) $(TORCH:%=--torch %) $(OTHER_TORCH:%=--other-torch %)

# Compiles the library for each version, and runs the tests with the first and the last. Fetches torch: several GB a version.
VERSIONS ?= 2.9 2.13 2.15
test-torch: $(VENV)/.installed $(VENV)/.test
	$(BIN)/python packaging/test_torch.py $(VERSIONS)

release-check:
	$(BIN)/python packaging/release_check.py

lint: $(VENV)/.installed $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(VENV)/.lint
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

# ---- environment ----------------------------------------------------------------------------------------------------

$(VENV)/.build: $(PINS)-build.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed: make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet -r $<
	touch $@

# One after the other also under make -j: pip does not share an environment.
$(VENV)/.run: | $(VENV)/.build
$(VENV)/.test: | $(VENV)/.run
$(VENV)/.lint: | $(VENV)/.test
$(VENV)/.bench: | $(VENV)/.test
$(VENV)/.browser: | $(VENV)/.test
$(VENV)/.run $(VENV)/.test $(VENV)/.lint $(VENV)/.browser: $(VENV)/.%: $(PINS)-%.txt
	$(PIP) install --quiet -r $<
	touch $@

# Each by itself: a peer that does not install on this machine must not keep the others out.
$(VENV)/.bench: $(PINS)-bench.txt
	grep -v '^#' $< | while read -r peer; do $(PIP) install --quiet "$$peer" || echo "left out: $$peer"; done
	touch $@

# Environments over that of the project, by a .pth file: torch and numpy are not installed again, and the package is always
# the one just built. The constraints keep pip from installing other versions of them.
SITE := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
$(INTEROP_ENVIRONMENTS:%=$(INTEROP)/%/.ready): $(INTEROP)/%/.ready: $(PINS)-interop-%.txt $(PINS)-run.txt | $(VENV)/.test
	test -x $(@D)/bin/python || $(BIN)/python -m venv $(@D)
	$(BIN)/python $(SITE) > $$($(@D)/bin/python $(SITE))/project.pth
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet -c $(PINS)-run.txt -r $<
	touch $@

# Not isolated, and in a build tree that stays, so that only what changed is compiled. pip configures the tree with tests
# but builds what the wheel needs; test-cpp builds the rest.
$(VENV)/.installed: $(SOURCES) $(VENV)/.build $(VENV)/.run build/.werror-$(WERROR)
	$(PIP) install --quiet --no-build-isolation --no-deps --config-settings build-dir=$(TREE) \
	  --config-settings cmake.define.WEIGHTSTORE_TESTS=ON --config-settings cmake.define.WEIGHTSTORE_WERROR=$(WERROR) \
	  --config-settings build.targets=weightstore_wheel .
	touch $@

# Changes when WERROR does.
build/.werror-$(WERROR):
	mkdir -p build
	rm -f build/.werror-*
	touch $@

# ---- CMake builds ---------------------------------------------------------------------------------------------------

# Without precompiled headers, a source that lacks an include does not compile.
FLAGS_asan := -DWEIGHTSTORE_SANITIZE=address -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
FLAGS_tsan := -DWEIGHTSTORE_SANITIZE=thread -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
FLAGS_bench := -DWEIGHTSTORE_TESTS=OFF -DWEIGHTSTORE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release \
  -DNANOBENCH_INCLUDE_DIR=$(CURDIR)/build/nanobench
FLAGS_fuzz = -DWEIGHTSTORE_TESTS=OFF -DWEIGHTSTORE_FUZZ=ON -DCMAKE_CXX_COMPILER=$(CLANGXX) \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON

build/%/build.ninja: $(VENV)/.build
	$(CMAKE) -S . -B build/$* -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DWEIGHTSTORE_TORCH=OFF $(FLAGS_$*)
	touch $@

build/bench/build.ninja: build/nanobench/nanobench.h
build/nanobench/nanobench.h: third_party/fetch_nanobench.py | $(VENV)/.build
	$(BIN)/python $< $(@D)

# ---- fuzzing --------------------------------------------------------------------------------------------------------

CLANGXX := $(firstword $(foreach name,clang++ $(foreach v,21 20 19 18 17 16 15 14,clang++-$(v)),$(shell command -v $(name) 2>/dev/null)))

fuzz: $(addprefix fuzz-,$(FUZZ_TARGETS))

.PHONY: fuzz-tools
fuzz-tools:
	@test -n "$(CLANGXX)" || { echo "make fuzz needs clang with libFuzzer; on Debian: apt install clang-14 libclang-rt-14-dev" >&2; exit 1; }

build/fuzz/build.ninja: | fuzz-tools

.PHONY: fuzz-build
fuzz-build: fuzz-tools build/fuzz/build.ninja
	$(CMAKE) --build build/fuzz --target $(FUZZ_TARGETS)

# What a run finds goes to build/fuzz/found; files worth keeping are copied to tests/fuzz/corpus by hand. The targets
# themselves limit the memory of each input (tests/fuzz/bounds.h); the limits here only stop what they cannot see. Inputs
# that take long are used less often for new ones, so that most inputs are small and quick.
.PHONY: $(addprefix fuzz-,$(FUZZ_TARGETS))
$(addprefix fuzz-,$(FUZZ_TARGETS)): fuzz-%: fuzz-build
	mkdir -p build/fuzz/found/$*
	cd build/fuzz && ASAN_OPTIONS=quarantine_size_mb=32:malloc_context_size=2 tests/fuzz/$* -runs=$(FUZZ_RUNS) -max_len=65536 \
	  -entropic_scale_per_exec_time=1 -malloc_limit_mb=64 -rss_limit_mb=4096 -timeout=$(FUZZ_TIMEOUT) -print_final_stats=1 -verbosity=0 \
	  found/$* $(CURDIR)/tests/fuzz/corpus/$*

clean:
	rm -rf build dist $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find python tests benchmarks examples third_party -name __pycache__ -type d -exec rm -rf {} +
