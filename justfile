# What CI runs. `just` alone lists the recipes.

default:
    @just --list

# Formatting.
fmt:
    cargo fmt --all -- --check

# Lints, warnings are errors.
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# Every test of the first tier, doc tests included.
test:
    cargo test --workspace

# The second tier, on an idle machine: every test with all of its cases, long tests, guards of speed and measurements alone,
# kernels with the compiler's checks of each operation, and unit tests on AVX2.
full: fmt lint doc full-guards full-alone full-targets full-tests full-candle full-kernels (full-path "avx2")

# Each crate alone, with its default features and with none, and the command line as a team's own crate has it: what another crate
# asks for hides what it lacks.
full-alone:
    cargo clippy -p maverl-cli --no-default-features --features serve,view -- -D warnings
    for crate in settings jinja answers models sandbox kernels engine dist hub macros; do \
        cargo check -p maverl-$crate && cargo check -p maverl-$crate --no-default-features || exit 1; done
    for crate in maverl maverl-serve maverl-view maverl-cli maverl-agents maverl-orchestras; do \
        cargo check -p $crate && cargo check -p $crate --no-default-features || exit 1; done

# Code of other processors and systems: lints for targets that run nothing here. Libraries in C are left out (`true` compiles them).
full-targets:
    for target in aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-unknown-linux-musl; do \
        rustup target add $target || { echo "skipped: rustup has no $target here"; continue; }; \
        TARGET_CC=true TARGET_CXX=true TARGET_AR=true \
        cargo clippy -p maverl-cli -p maverl-orchestras --features maverl-cli/full --target $target -- -D warnings || exit 1; done
    rustup target add x86_64-pc-windows-gnu || { echo "skipped: rustup has no x86_64-pc-windows-gnu here"; exit 0; }; \
        TARGET_CC=true TARGET_CXX=true TARGET_AR=true \
        cargo clippy -p maverl-cli --features stock --target x86_64-pc-windows-gnu -- -D warnings

# Every test of the first tier with all of its cases.
full-tests:
    MAVERL_FULL=1 cargo test --workspace

# What needs candle: GGUF files, damaged ones too; the device `candle:cpu`, its contract and each of its derivatives.
full-candle:
    cargo clippy -p maverl-engine -p maverl -p maverl-cli --features maverl-cli/candle --all-targets -- -D warnings
    MAVERL_FULL=1 cargo test -p maverl-engine -p maverl --features maverl/candle --lib -- gguf pickle candle contract device

# Kernels with the checks that their profile leaves out, on the best path and on the slowest.
full-kernels:
    cargo test -p maverl-kernels {{ checked }}
    MAVERL_SIMD=scalar cargo test -p maverl-kernels {{ checked }}

checked := "--config profile.dev.package.maverl-kernels.debug-assertions=true --config profile.dev.package.maverl-kernels.overflow-checks=true"

# Unit tests of every crate on a path that is not the best of this processor: `just full-path avx2`.
full-path PATH:
    MAVERL_SIMD={{ PATH }} cargo test --workspace --lib --test golden --test paths

# Long tests, guards of speed and measurements, one at a time. Without those of MPI, the pictures of the book, and training for 25 minutes.
full-guards:
    cargo test --workspace --tests -- --ignored --test-threads 1 --nocapture --skip pictures_of_a_run --skip the_verifier_of_the_example_knows

# The GPU's kernels alone, without a GPU: they run as C++ on the CPU, and NVRTC compiles them where it is there. Part of
# `just test`.
cuda:
    cargo test -p maverl-kernels --features cuda --lib -- advantage cuda

# Ranks over MPI (needs Debian's packages libopenmpi-dev, openmpi-bin and libclang-dev, or those of another MPI; `LIBCLANG_PATH`
# names the folder of libclang where it is not found).
mpi *ARGS:
    cargo clippy -p maverl-dist -p maverl-tests --features maverl-tests/mpi --all-targets -- -D warnings
    cargo test -p maverl-dist -p maverl-tests --features maverl-dist/mpi,maverl-tests/mpi --test mpi {{ARGS}}

# The kernels on NEON, under an emulator (needs `rustup target add aarch64-unknown-linux-gnu`, and Debian's packages
# g++-aarch64-linux-gnu and qemu-user; about ten minutes).
neon *ARGS:
    CXX=aarch64-linux-gnu-g++ CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
    cargo test -p maverl-kernels --target aarch64-unknown-linux-gnu {{ARGS}}

# The API documentation, warnings are errors. Crates that the lints have checked are not checked again: their compiler is the same.
doc:
    RUSTC_WORKSPACE_WRAPPER="$(rustc --print sysroot)/bin/clippy-driver" \
    CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__" \
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Benchmarks of the numeric kernels and of what surrounds the model. `maverl bench` measures the whole.
bench:
    cargo bench -p maverl-kernels -p maverl --features maverl-kernels/candle

# The main job: train the three-agent search team from the shipped model.
example:
    cargo run --release --example search_orchestra

# Trains every preset for a minute from each of three seeds, and says by how much it improves (about an hour).
learners *ARGS:
    cargo run --release -p maverl-lab --bin learners -- {{ARGS}}

# Trains every example for a minute, and says what it solved before and after (about half an hour).
environments *ARGS:
    cargo run --release -p maverl-lab --bin environments -- {{ARGS}}

# Checks claims of papers on small runs (about two hours on two idle cores; finished runs are kept, so it may be stopped and started
# again, and `just claims mixers-separate` runs one claim): `just claims --write docs/src/claims.md` writes the tables and drawings.
claims *ARGS:
    cargo run --release -p maverl-lab --bin claims -- {{ARGS}}

# Prints numbers about the structure of this checkout, or of another: `just house DIR`. `just house . --list functions` prints what a
# number counts: `functions`, `types`, `closures`, `matches` or `circles`.
house DIR="." *ARGS:
    @python3 tests/python/house.py {{ DIR }} {{ ARGS }}

# Makes the pictures of the book from the runs in a directory, in both themes (needs chromium-headless-shell):
# `just screenshots runs/seeds`.
screenshots RUNS OUT="docs/src/img/view" STEP="10":
    MAVERL_RUNS={{ absolute_path(RUNS) }} MAVERL_PICTURES={{ absolute_path(OUT) }} MAVERL_STEP={{ STEP }} cargo test --workspace --lib -- --ignored pictures_of_a_run

# Checks the types of the scripts of the pages (needs TypeScript: `npm install --global typescript`).
types:
    tsc --noEmit --allowJs --checkJs --strict --target es2022 --module es2022 --moduleResolution bundler --lib es2023,dom,dom.iterable crates/view/web/*.js

# Measures the pages on a run of 10^5 episodes, made from another run.
view-times RUN OUT="/tmp/large":
    python3 tests/python/view_times.py {{ RUN }} {{ OUT }} --binary target/release/maverl

# Measures what recording costs: the quantities of tokens in updates, and everything in whole steps.
columns CONFIG="examples/search_orchestra.toml":
    python3 tests/python/columns.py {{ CONFIG }} --binary target/release/maverl

# Draws the gradient norms of a team with unequal rewards under three baselines.
gradient-norms:
    cargo run --release -p maverl-lab --bin gradient_norms

# Generates the code of the gRPC protocol again, after a change of its file.
protocol:
    cargo run --manifest-path tests/protocol/Cargo.toml

# Compares the readers of tool calls with those of two other crates, on rendered replies and their beginnings (compiles about 300 crates).
readers:
    cargo run --release --manifest-path tests/readers/Cargo.toml

# Makes the shipped model again (about half an hour on two cores).
tiny:
    cargo run --release -p maverl-lab --bin make_tiny

# Makes the model that knows every built-in environment (about half an hour on two cores).
make-generalist *ARGS:
    cargo run --release -p maverl-lab --bin make_generalist -- {{ARGS}}

# Makes environments with the clients of the servers (`verifiers` needs another `openai` than they do), and drives the servers with
# them.
clients:
    python3 -m venv tests/python/.venv
    tests/python/.venv/bin/pip install -r tests/python/requirements-openai.txt -r tests/python/requirements-anthropic.txt -r tests/python/requirements-openenv.txt -r tests/python/requirements-grpc.txt -r tests/python/requirements-programs.txt -r tests/python/requirements-lm-eval.txt -r tests/python/requirements-package.txt -r tests/python/requirements-tracking.txt -r tests/python/requirements-tinker.txt
    python3 -m venv tests/python/.venv-verifiers
    tests/python/.venv-verifiers/bin/pip install -r tests/python/requirements-verifiers.txt
    python3 -m venv tests/python/.venv-launch
    tests/python/.venv-launch/bin/pip install -r tests/python/requirements-launch.txt
    cargo test --workspace --test e2e -- --nocapture package judged wandb
    cargo test --workspace --test serve -- --nocapture clients openenv grpc harness frameworks verifiers messages tinker

# For `tests/python/peers/bench.py` and `pairs.py`, whose commands the page about performance has. `PYTHON` is a Python 3.11.
# llama.cpp is built from source, for this processor: it needs a compiler for C++, and minutes.
# Makes environments with the programs that maverl is compared with: torch, transformers and TRL; vLLM; llama.cpp.
peers PYTHON="python3":
    for peer in trl vllm llama-cpp; do {{ PYTHON }} -m venv tests/python/peers/.venv-$peer || exit 1; done
    tests/python/peers/.venv-trl/bin/pip install -r tests/python/peers/requirements-trl.txt
    tests/python/peers/.venv-vllm/bin/pip install --no-deps -r tests/python/peers/requirements-vllm.txt
    CMAKE_ARGS="${CMAKE_ARGS:--DGGML_NATIVE=ON -DLLAVA_BUILD=OFF}" tests/python/peers/.venv-llama-cpp/bin/pip install -r tests/python/peers/requirements-llama-cpp.txt

# Builds the book, and checks links, spelling, scripts, workflows, the image and licenses, with programs from PyPI. `target/site` has
# the book.
site:
    .ci/site

# Packs the crates that are published, and checks their sizes and what registries demand. Compiles nothing.
package:
    .ci/package

# Builds the wheel of a target with zig from PyPI: `just wheel aarch64-unknown-linux-gnu`. It is in `target/wheels`; what it needs of
# a machine is checked.
wheel TARGET="x86_64-unknown-linux-gnu":
    .ci/wheel {{ TARGET }}

# Packs the binary of `just wheel` with completions, man pages and licenses into `target/archives`. The binary must run here.
archive TARGET="x86_64-unknown-linux-gnu":
    .ci/archive target/{{ TARGET }}/dist/maverl {{ TARGET }} crates/cli/python/LICENSE-THIRD-PARTY target/archives

# Times what a new user does with a wheel: install, train, view, without cargo and a compiler on `PATH`.
first-minute WHEEL:
    .ci/first-minute {{ WHEEL }}

# Pins the programs of `just site`, `just wheel` and the workflow `release` again (needs `uv`).
lock-tools:
    for list in site wheel publish; do uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate .github/requirements/$list.in --output-file .github/requirements/$list.txt; done
