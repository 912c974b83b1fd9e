# shellcheck shell=bash disable=SC2034,SC2154
# The programs of examples/python with 2 ranks. Importing torch takes seconds, so `make check` does not have them.
limit=240

# shellcheck source=tests/e2e/losses.sh
. "$top/tests/e2e/losses.sh"

# shellcheck source=tests/e2e/python.sh
. "$top/tests/e2e/python.sh"

example() { # NP NAME ARGUMENT...
    needs_package
    hvd -np "$1" "${python[@]}" "$top/examples/python/$2" "${@:3}"
}

falls_below() { # FACTOR: the last loss is below that part of the first
    losses "$T/out" | awk -v most="$1" 'NR == 1 { first = $2 } { last = $2 } END { exit !(NR > 1 && last < most * first) }' || fail 'the loss does not fall'
}

case_numpy() {
    needs_module numpy
    example 2 line.py --points 10000
    expect_status 0
    expect_no_err
    expect_out '^rank 1: 5000 points$'
    expect_out '^slope=(2\.00|1\.99)[0-9]* height=-(1\.00|0\.99)[0-9]* of 10000 points$'
}

slow_the_trainer_has_the_losses_of_one_process_and_of_c() {
    needs_module torch
    local np
    for np in 1 2; do
        example $np train_text.py --steps 30
        expect_status 0
        losses "$T/out" > "$T/losses.$np"
    done
    hvd -np 1 "$TRAIN" --steps 30
    losses "$T/out" > "$T/losses.c"
    same_losses "$T/losses.1" "$T/losses.2" 1e-5
    same_losses "$T/losses.c" "$T/losses.2" 1e-5
}

slow_the_language_model_learns_and_writes() {
    needs_module torch
    example 2 language_model.py --steps 100 --write 20
    expect_status 0
    falls_below 0.85
}

slow_digits() {
    needs_module torch
    example 2 digits.py --epochs 5
    if ! has_module sklearn; then
        expect_status 1
        expect_err 'digits.py needs scikit-learn, which has the images: pip install scikit-learn'
        return
    fi
    expect_status 0
    expect_out '^epoch 5 loss=[0-9.]+ right=(26[0-9]|2[7-9][0-9])/297$'
}
