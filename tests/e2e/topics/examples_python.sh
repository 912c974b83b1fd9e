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
    example 2 ddp.py --epochs 5
    expect_status 0
    expect_out '^epoch 5 loss=[0-9.]+ right=(26[0-9]|2[7-9][0-9])/297$'
}

# A rank is killed in the middle; the other ranks learn as well.
slow_elastic() {
    needs_package
    needs_module torch
    needs_module sklearn
    # shellcheck disable=SC2016
    start -np 3 --min-np 2 sh -c 'echo worker $HVD_WORKER is $$; exec "$@"' sh "${python[@]}" "$top/examples/python/elastic.py" --epochs 60
    until_out 60 '^epoch 3 ranks=3 '
    kill -KILL "$(sed -n 's/^worker 1 is //p' "$T/out")"
    stop_status
    expect_status 0
    expect_err 'the job goes on with 2 ranks \(membership 2: 1 left, 0 came\)'
    expect_out '^2 ranks go on at epoch [0-9]+, step [0-9]+$'
    expect_out '^epoch 60 ranks=2 right=2[6-9][0-9]/297$'
}

# A rank is killed in the middle; the other ranks go on with the same processes, and end with the losses of a job without a death.
slow_elastic_ddp() {
    needs_package
    needs_module torch
    example 2 elastic_ddp.py --steps 200 --pause 0
    expect_status 0
    local whole
    whole=$(sed -n 's/^end ranks=2 //p' "$T/out")
    # shellcheck disable=SC2016
    start -np 4 --min-np 2 -H localhost:4 sh -c 'echo worker $HVD_WORKER is $$; exec "$@"' sh "${python[@]}" "$top/examples/python/elastic_ddp.py" \
        --steps 200 --pause 0.02
    until_out 60 '^step 50 ranks=4 '
    kill -KILL "$(sed -n 's/^worker 0 is //p' "$T/out")"
    stop_status
    expect_status 0
    expect_err 'the job goes on with 3 ranks \(membership 2: 1 left, 0 came\)'
    expect_out '^3 ranks go on at step [0-9]+$'
    expect_same 4 "$(grep -c '^worker [0-9] is ' "$T/out")" 'the number of processes'
    expect_same "$whole" "$(sed -n 's/^end ranks=3 //p' "$T/out")" 'the last loss'
}
