# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# --pty over SSH: the terminal is made where the rank runs.
hosts=2
limit=45

case_a_terminal_on_another_host() {
    echo words > "$T/in"
    hvd --pty --stdin 1 -H $H1:1,$H2:1 sh -c 'if [ -t 0 ]; then read -r line; echo "$HVD_HOST $(stty size) $line"; fi'
    expect_status 0
    expect_out "^$H2 24 80 words.\$"
}
