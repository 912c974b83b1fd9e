/* Module `yaml`: reads a configuration file (common/options/settings.h). */
#pragma once

#include "common/options/settings.h"

#define YAML_MODULE "yaml"
#define YAML_SYMBOL "hvd_yaml_read"

settings_read_fn hvd_yaml_read;
