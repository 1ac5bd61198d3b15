# A thin front door: Meson builds, scripts/ does the rest. Nothing is decided here.
#
#   make            build/cove
#   make run        install what is missing, build, and show a hostile program failing at each wall,
#                   and an agent at work
#   make test       what finds nearly every fault, in twelve minutes: unit tests under ASan and UBSan, attacks,
#                   behaviour, npm packages, the quick part of lint
#   make test-all   all there is: make test, the whole lint, both guests, a minute for each fuzz entry, a short soak
#   make soak       make test with the full counts, and ten minutes for each fuzz entry
#   make fuzz       a minute for each; SECONDS=600 for longer
#   make test-vm    the attack tests on Debian's kernel with pure cgroup v2, in emulated machines;
#                   ARCH=arm64 for that machine
#   make bench BENCH=box, =engine, =fair, =files, =kernels, =mastra, =net, =store,
#                   =typescript
#   make arm64      build/arm64: all programs of a release, and what its tests need; unit tests under an emulator
#   make mutants    changes one line after another of a copy, and sees whether a test fails;
#                   ROOM=policy for one room, ONLY=NAME for one change
#   make npm        the npm packages as files, in build/npm; ARCH=arm64 for that machine, in build/arm64/npm
#   make deb        Debian packages, in build/deb, and make tarball an archive, in build/tarball;
#                   ARCH=arm64 for that machine
#   make image      the server as a container image, in build/image; ARCH=arm64 for that machine
#   make install    into PREFIX, and make uninstall its opposite
#   make lint, make format, make clean

BUILD ?= build
PREFIX ?= /usr/local
BENCH ?= box
ARCH ?= x86_64
SECONDS ?= 60
PYTEST ?= /usr/bin/python3 -m pytest
PYTEST_ARGS ?=
ROOM ?=
ONLY ?=

.PHONY: all run test test-all soak fuzz test-vm mutants bench arm64 npm deb tarball image install uninstall format lint clean setup setup-test setup-node

all: setup
	@scripts/build.sh release $(BUILD)

setup:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test

# After the other, for the package manager takes no two at once.
setup-node: setup
	@scripts/setup.sh node

run: all setup-node
	@COVE=$(BUILD)/cove examples/tour.sh
	@BUILD=$(BUILD) scripts/build-addon.sh
	@scripts/build-js.sh
	@COVE=$(BUILD)/cove examples/agent/run.sh

test: all setup-test
	@BUILD=$(BUILD) scripts/build-tests.sh
	@BUILD=$(BUILD) PYTEST="$(PYTEST)" scripts/test.py $(PYTEST_ARGS)

test-all: all setup-test
	@BUILD=$(BUILD) PYTEST="$(PYTEST)" scripts/test-all.sh

soak: all setup-test
	@BUILD=$(BUILD) scripts/build-tests.sh
	@COVE_SOAK=1 BUILD=$(BUILD) PYTEST="$(PYTEST)" scripts/test.py
	@BUILD=$(BUILD) scripts/fuzz.sh 600

fuzz: setup-test
	@BUILD=$(BUILD) scripts/fuzz.sh $(SECONDS)

test-vm:
	@scripts/setup.sh vm
	@[ "$(ARCH)" != arm64 ] || scripts/setup.sh arm64
	@BUILD=$(BUILD) PYTEST_ARGS="$(PYTEST_ARGS)" scripts/test-vm.sh $(ARCH)

mutants: setup-test
	@BUILD=$(BUILD) scripts/mutants.py $(ROOM:%=--room %) $(ONLY:%=--only %)

bench: all
	@bench/run.sh $(BENCH)

arm64:
	@scripts/setup.sh arm64
	@BUILD=$(BUILD) scripts/build-arm64.sh

install: all
	meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX))
	meson install -C $(BUILD)

uninstall:
	@BUILD=$(BUILD) scripts/uninstall.sh

npm: all setup-node
	@[ "$(ARCH)" != arm64 ] || scripts/setup.sh arm64
	@BUILD=$(BUILD) scripts/pack-npm.sh $(filter arm64,$(ARCH))

deb tarball: all
	@scripts/setup.sh pack
	@[ "$(ARCH)" != arm64 ] || { scripts/setup.sh arm64 && scripts/build.sh release $(BUILD)/arm64 arm64; }
	@BUILD=$(BUILD) scripts/pack.sh $@ $(filter arm64,$(ARCH))

image: all
	@scripts/setup.sh image
	@[ "$(ARCH)" != arm64 ] || { scripts/setup.sh arm64 && scripts/build.sh release $(BUILD)/arm64 arm64; }
	@BUILD=$(BUILD) scripts/pack-image.sh $(filter arm64,$(ARCH))

format:
	@scripts/format.sh

lint: setup-test
	@scripts/lint.sh

clean:
	rm -rf $(BUILD)
