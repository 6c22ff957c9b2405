# Short names for the everyday commands; the build itself is CMake's.
#
#   make demo      build, then train the demonstration model
#   make test      build, then run every test
#   make bench     all benches (bench-step, bench-optim, bench-elastic: one)
#   make install   PREFIX=/usr/local DESTDIR=
#   make fuzz      every fuzz target for FUZZ_SECONDS
#   make soak-elastic  workers that come and go for SOAK_SECONDS, checked
#   make ci-full   every compiler, sanitizer and check, and the fuzz targets

PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PEER_PYTHON ?= /usr/bin/python3
FUZZ_SECONDS ?= 20
SOAK_SECONDS ?= 600

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
	$(call build,release,example_demo)
	@build/release/examples/demo --output build/center.safetensors

test:
	@scripts/install-deps
	$(call build,release,all)
	@ctest --preset release

# Tests of one other preset: make test-asan, test-tsan, test-clang.
test-%:
	$(call build,$*,all)
	@ctest --preset $*

bench: bench-step bench-optim bench-elastic

bench-step bench-optim bench-elastic: bench-%:
	@scripts/install-deps --bench
	$(call build,release,bench)
	@mkdir -p build/bench
	@$(PEER_PYTHON) bench/run_$*.py

fuzz:
	$(call build,fuzz,all)
	@tools/run_fuzz.sh build/fuzz/fuzz $(FUZZ_SECONDS)

soak-elastic:
	$(call build,asan,test_elastic_threads)
	@build/asan/tests/test_elastic_threads --soak $(SOAK_SECONDS)

ci-full:
	@scripts/install-deps --full
	@.ci/run
	@$(MAKE) --no-print-directory test-clang
	@$(MAKE) --no-print-directory test-asan
	@$(MAKE) --no-print-directory test-tsan
	@$(MAKE) --no-print-directory fuzz

install:
	$(call build,release,all)
	@DESTDIR=$(DESTDIR) cmake --install build/release --prefix $(PREFIX)

clean:
	@rm -rf build

.PHONY: all demo test bench bench-step bench-optim bench-elastic fuzz \
        soak-elastic ci-full install clean
