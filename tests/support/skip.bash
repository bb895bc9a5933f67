# Sourced by test files that skip as a whole: to bats 1.8, a skip in setup_file is a failure.

# skip_file REASON: for setup_file, which returns then. Each test skips in its set-up.
skip_file() { export SKIP_FILE=$1; }
skip_with_file() { if file_skips; then skip "$SKIP_FILE"; fi; }
# For teardown and teardown_file, which bats calls all the same: nothing was set up that they could take down.
file_skips() { [[ -n ${SKIP_FILE-} ]]; }
