// cluster_bed.h - center servers and connections for tests.
#ifndef CLUSTER_BED_H
#define CLUSTER_BED_H
#include "suite_center.h"
#include <unistd.h>
#include "cluster/cluster.h"
#include "cluster/remote/remote.h"
#include "cluster/center/server.h"

// A folder of the test's own; emptied and removed by bed_folder_remove.
static inline void bed_folder_make(char folder[64]) {
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, 64, "%.40s/hk-cluster-XXXXXX",
             tmp != NULL && strlen(tmp) < 40 ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
}

static inline void bed_folder_remove(const char *folder) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static inline void bed_server_options(hk_center_server_options *o,
                                      const char *const *address) {
    hk_center_server_options_init(o, sizeof *o);
    o->addresses = address;
    o->n_addresses = 1;
}

static inline void bed_connect_options(hk_connect_options *o,
                                       const char *const *addresses, size_t n) {
    hk_connect_options_init(o, sizeof *o);
    o->addresses = addresses;
    o->n_addresses = n;
    o->connect_ms = 10000;
}

#endif // CLUSTER_BED_H
