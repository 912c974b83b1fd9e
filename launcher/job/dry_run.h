/* --dry-run and --check-build: what would happen, and what this build can do. Neither touches the network. */
#pragma once

#include <stdio.h>

#include "common/base/err.h"
#include "launcher/cli/config.h"
#include "launcher/plan/hosts.h"

/* The hosts, their ranks and transports, the command. ERR_USAGE when there are more ranks than slots. */
int dry_run_print(const struct config *config, const struct host_list *hosts, const char *hostname, FILE *out,
                  struct err *e);
/* Version, transports, modules and programs with their paths. */
void check_build_print(FILE *out);
