# Everything a clone needs, from a fresh machine: `make demo`, then `make test`.

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
# Tests run in a process for each core. A file's tests run in one process, so their devices are
# opened once. tests/file_order.py orders the files.
WORKERS := --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
SITE := build/site/html
ENVIRONMENT := sh build_support/environment.sh "$(PYTHON)" $(firstword $(origin PYTHON))

# With this variable, every process that tests start would compile each module again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo build simulators kernels kernels-cuda kernels-rocm kernels-opencl test soak mutants interpreters
.PHONY: debug sanitize bench device wheel docs lint format types check clean
.DEFAULT_GOAL := help

help: ## List what make can do
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile
	@echo "PYTHON=python3.12 chooses the interpreter, PYTEST='-k launch' passes options to pytest."
	@echo "make test CHANGED=1 runs what your change can reach; CHANGED=main compares with main."

demo: build ## Check the machine, make .venv, build, compare a random network with numpy
	@$(VENV_PYTHON) -m uhal network_test
	@echo "Next: .venv/bin/python -m uhal doctor · examples/01_devices.py · make test"

build: ## Bring .venv and the compiled parts up to date
	@$(ENVIRONMENT)

simulators: ## Build the simulated vendor drivers, and bring what executes kernels on them
	@$(ENVIRONMENT) sim
	@$(VENV_PYTHON) -m simulators.build

kernels: kernels-cuda kernels-rocm kernels-opencl ## Compile the kernels for accelerators (needs nvcc); the results are committed

kernels-cuda: build
	$(VENV_PYTHON) -m build_support.cuda_kernels
	$(VENV_PYTHON) -m build_support.conformance_images cuda

kernels-rocm: # clang for AMD's devices is a wheel
	@$(ENVIRONMENT) kernels
	$(VENV_PYTHON) -m build_support.rocm_kernels
	$(VENV_PYTHON) -m build_support.conformance_images rocm

kernels-opencl: # and for SPIR-V the same
	@$(ENVIRONMENT) kernels
	$(VENV_PYTHON) -m build_support.opencl_kernels
	$(VENV_PYTHON) -m build_support.conformance_images opencl

test: ## Run the tests (at most 10 minutes)
	@$(ENVIRONMENT) test
	@$(VENV_PYTHON) -m simulators.build
ifdef CHANGED
	@files=$$($(VENV_PYTHON) -m build_support.changed $(CHANGED:1=HEAD)) && \
		[ -z "$$files" ] || $(VENV_PYTHON) -m pytest $(WORKERS) $$files $(PYTEST)
else
	$(VENV_PYTHON) -m pytest $(WORKERS) $(PYTEST)
endif

soak: ## Run the tests with full counts (no time limit); build/coverage/html shows the lines they reach
	@$(ENVIRONMENT) test wheels
	@$(VENV_PYTHON) -m simulators.build
	@mkdir -p build/coverage
	UHAL_TEST_SOAK=1 $(VENV_PYTHON) -m pytest $(WORKERS) --cov --cov-report=html $(PYTEST)

mutants: ## Plant mistakes one at a time and print those that the nearest tests do not find
	@$(ENVIRONMENT) test mutants
	$(VENV_PYTHON) -m build_support.mutants $(MUTANTS)

interpreters: ## Run conformance on the host under the oldest and the newest other Python here
	@$(ENVIRONMENT) test
	$(VENV_PYTHON) -m build_support.interpreters $(WORKERS) tests/conformance -k '$(HOST)' $(PYTEST)

debug: ## Build everything for a debugger, in build/flavours/debug
	@$(ENVIRONMENT)
	@$(VENV_PYTHON) -m build_support.flavoured debug

# These tests do not run under a sanitizer. Compilers and gdb crash when a sanitizer is preloaded. It
# changes sizes, maps, growth and counts of instructions, also in a suite that runs inside a test. It
# changes the end of a crash. With GCC 12, a fork beside threads sometimes fails.
HOST := not sim and not skeleton and not opencl and not webgpu
SANE := not nvcc and not gdb and not same_source_is_cuda and not link_time_code \
	and not new_project and not a_crash and not images_stay_small and not maps_nothing \
	and not leave_nothing and not forking_beside and not forked_child and not instruction_budget \
	and not three-backends and not another_distribution
SANITIZED := python -m pytest $(WORKERS)

sanitize: ## Run tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer
	@$(ENVIRONMENT) test
	$(VENV_PYTHON) -m build_support.flavoured address $(SANITIZED) \
		tests/unit tests/host_runtime tests/conformance -k '$(HOST) and $(SANE)' $(PYTEST)
	$(VENV_PYTHON) -m build_support.flavoured thread $(SANITIZED) \
		tests/host_runtime tests/unit/test_host_waits.py \
		tests/conformance/test_streams.py tests/conformance/test_threads.py \
		tests/conformance/test_memory.py tests/conformance/test_waits.py -k '$(HOST)' $(PYTEST)

bench: ## Measure everything that has a gate; PEERS=python is one that has the other libraries
	@$(ENVIRONMENT) sim
	@$(VENV_PYTHON) -m simulators.build
	$(VENV_PYTHON) -m benchmarks $(if $(PEERS),--peers $(PEERS))

# Offline: the given interpreter has Cython, numpy and pytest, and .venv is not needed.
device: ## Try everything on the GPU of this machine, within nine minutes; writes build/device
	@$(if $(wildcard $(VENV_PYTHON)),$(VENV_PYTHON),$(PYTHON)) -m build_support.first_device

wheel: ## Build wheels for every CPython here, in dist/; MACHINE=aarch64 for another machine
	@$(ENVIRONMENT) wheels$(if $(MACHINE), kernels)
	$(VENV_PYTHON) -m build_support.wheels $(if $(MACHINE),--machine $(MACHINE))

# A warning is an error. CHECK=1 tests the site in Chromium; LINKS=1 checks the links to other
# sites.
docs: ## Build the site, in build/site/html
	@$(ENVIRONMENT) docs llm$(if $(CHECK), browser)
	$(VENV_PYTHON) -m sphinx -q -W --keep-going -b html -d build/site/doctrees docs $(SITE)
	$(VENV_PYTHON) -m build_support.site.check $(SITE)
	$(if $(CHECK),$(VENV_PYTHON) -m build_support.site.browser $(SITE))
	$(if $(LINKS),$(VENV_PYTHON) -m sphinx -q -b linkcheck -d build/site/doctrees docs build/site/links)

lint: ## Check style: Python, Cython, C and C++
	@$(ENVIRONMENT) dev
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m build_support.formatting --check

format: ## Put Python, C and C++ into the project's style
	@$(ENVIRONMENT) dev
	$(VENV_PYTHON) -m ruff check --fix-only -q .
	$(VENV_PYTHON) -m ruff format .
	$(VENV_PYTHON) -m build_support.formatting

types: ## Check types with mypy, the lane against its stubs, and a program with typos
	@$(ENVIRONMENT) dev
	$(VENV_PYTHON) -m mypy
	$(VENV_PYTHON) -m mypy.stubtest uhal._lane --mypy-config-file pyproject.toml --concise \
		--ignore-missing-stub --ignore-disjoint-bases --allowlist build_support/stubtest_allowlist.txt
	$(VENV_PYTHON) -m build_support.typos

check: lint types test docs ## All that a change must pass

clean: ## Remove what the build made; .venv stays
	rm -rf build dist simulators/build *.egg-info .mypy_cache .pytest_cache .ruff_cache ubridge/kernels/host
	rm -f uhal/_lane*.so host_backend/libuhal_host.*
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
