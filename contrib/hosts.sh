#!/bin/bash
# hvdrun on the hosts of a file: contrib/hosts.sh ./train --steps 1000
#
# One rank for every slot. The program, and hvdagent, are on every host under the same path; SSH logs in with a key.
exec hvdrun --hostfile "$(dirname "$0")/hosts.txt" --tag host "$@"
