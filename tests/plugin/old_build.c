// old_build.c - a plug-in as another version of Hooke might have left it.
#include "backend/plugin.h"

const hki_plugin hki_plugin_entry = {
    .build = {.version = {0, 0, 9}, .operators = HKI_OP_COUNT - 1}};
