# What TensorFlow, PaddlePaddle and JAX read, on two real hosts: their documented formats, and ports that ranks can have.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016
hosts=2
limit=45

# shellcheck source=tests/e2e/frameworks.sh
. "$top/tests/e2e/frameworks.sh"

case_every_rank_listens_where_the_list_says() {
    needs_kind ns
    frameworks -H $H1:2,$H2:2
    expect_sorted "$(grep ^coord "$T/out")" "$(grep ^endp "$T/out")" "0 node1 GPU None" "1 node1 GPU None" "2 node2 GPU None" "3 node2 GPU None"
    a=$(on 1 'echo $HVD_TEST_ADDRESS; hostname -I' | tr ' ' '\n' | grep -m1 .)
    b=$(on 2 'hostname -I' | tr ' ' '\n' | grep -m1 .)
    addresses "$a $a $b $b"
}

slow_the_list_is_in_the_order_of_ranks() {
    needs_kind ns
    frameworks -H $H1:2,$H2:2 --map-by node
    read -ra list < <(sed -n 's/^endpoints //p' "$T/out")
    addresses "${list[0]%:*} ${list[1]%:*} ${list[0]%:*} ${list[1]%:*}"
    [ "${list[0]%:*}" != "${list[1]%:*}" ] || fail "both hosts have ${list[0]%:*}"
}
