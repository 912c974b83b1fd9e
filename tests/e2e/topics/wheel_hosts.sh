# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# Jobs on two hosts from a venv with the wheels of `make wheel`, under the same path on both; `make check-wheel` has the cases of one host.
hosts=2
limit=120

make_venv() { # [ARGUMENT]...
    local wheels=("$BUILD"/dist/*.whl)
    [ -e "${wheels[0]}" ] || skip 'no wheels in this build: make wheel'
    /usr/bin/python3 -m venv "$@" "$T/venv" && "$T/venv/bin/pip" install -q --no-index "${wheels[@]}" || fail 'no venv'
    cp "$top/tests/wheel/sum.py" "$T"
    HVDRUN=$T/venv/bin/horovodrun PATH=$T/venv/bin:$PATH
}

slow_the_same_path() {
    make_venv
    hvd -np 4 -H $H1:2,$H2:2 python sum.py
    expect_status 0
    expect_no_err
    expect_sorted 'rank 0 of 4: 10.0' 'rank 1 of 4: 10.0' 'rank 2 of 4: 10.0' 'rank 3 of 4: 10.0'
}

# The modules of a wheel that are sent need no library of the wheel.
slow_an_agent_that_is_sent() {
    make_venv
    hvd --send-agent --agent-path /no/such/hvdagent -np 2 -H $H1:1,$H2:1 sh -c 'readlink /proc/$PPID/exe; python sum.py'
    expect_status 0
    expect_count 2 '^/.*/hvd-sent-.*/hvdagent$' "$T/out"
    expect_count 2 '^rank [01] of 2: 3.0$' "$T/out"
}

# With the machine's frameworks.
slow_examples() {
    local module
    for module in torch sklearn; do
        /usr/bin/python3 -c "import importlib.util as u, sys; sys.exit(u.find_spec('$module') is None)" || skip "no python3-$module here"
    done
    make_venv --system-site-packages
    hvd -np 4 -H $H1:2,$H2:2 python "$top/examples/python/digits.py" --epochs 3
    expect_status 0
    expect_out '^epoch 3 loss=[0-9.]+ right=2[0-9][0-9]/297$'
    hvd -np 2 -H $H1:1,$H2:1 python "$top/examples/python/train_text.py" --steps 5
    expect_status 0
    expect_out '^step 5 loss=4\.1115'
    hvd -np 4 -H $H1:2,$H2:2 python "$top/examples/python/line.py" --points 1000
    expect_status 0
    expect_out '^slope=[12]\.'
}
