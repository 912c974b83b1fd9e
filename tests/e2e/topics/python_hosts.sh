# shellcheck shell=bash disable=SC2034,SC2154
# The tests of the Python package with ranks on two hosts; python/tests/run.sh has those of one host.
hosts=2
limit=120

# shellcheck source=tests/e2e/python.sh
. "$top/tests/e2e/python.sh"

tests_with() { # RANKS OF A HOST, NAME OF A MODULE...
    local each=$1 name files=()
    shift
    needs_package
    for name; do files+=("$top/python/tests/test_$name.py"); done
    hvd -np $((2 * each)) -H "$H1:$each,$H2:$each" env HVD_QUICK_TESTS=1 "${python[@]}" "$top/python/tests/job.py" "${files[@]}"
    [ "$status" != 77 ] || skip "$(sed -n 's/^skip //p' "$T/out" | head -n 1)"
    expect_status 0
    expect_out '^ran [0-9]+ tests'
}

arrays=(arrays handles stress) # not plain: NumPy cannot be imported there
tensors=(torch_operations torch_sets torch_gradients torch_functions torch_optimizer torch_stress)

case_arrays() {
    tests_with 2 "${arrays[@]}"
}

case_without_numpy() {
    tests_with 2 plain
}

slow_arrays_with_a_rank_a_host() {
    tests_with 1 "${arrays[@]}"
}

case_tensors() {
    tests_with 2 "${tensors[@]}"
}

slow_tensors_with_a_rank_a_host() {
    tests_with 1 "${tensors[@]}"
}
