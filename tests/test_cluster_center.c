// test_cluster_center.c - the remote center against the suite that every
// center passes, over every transport and with several shards.
#include "cluster_bed.h"

#define MAX_SHARDS 3

static char folder[64];

// What the suite's create makes: servers and one connection to them.
static struct {
    const char *scheme;
    uint32_t n_shards;
    bool file;
} plan;

static hk_key test_key(void) {
    hk_key k = {.name = "cluster"};
    memset(k.secret, 5, sizeof k.secret);
    return k;
}

static unsigned counter;

static void listen_address(char *out, size_t size) {
    counter++;
    if (strcmp(plan.scheme, "tcp") == 0 || strcmp(plan.scheme, "tls") == 0)
        snprintf(out, size, "%s:127.0.0.1:0", plan.scheme);
    else if (strcmp(plan.scheme, "inproc") == 0)
        snprintf(out, size, "inproc:center-%u", counter);
    else
        snprintf(out, size, "%s:%s/s%u", plan.scheme, folder, counter);
}

static hk_center_server *servers[64];
static size_t n_servers;

static hk_status create(const hk_center_options *opt, hk_layout *layout,
                        hk_center **out) {
    const hk_key key = test_key();
    const char *addresses[MAX_SHARDS];
    char text[MAX_SHARDS][128];
    for (uint32_t i = 0; i < plan.n_shards; i++) {
        listen_address(text[i], sizeof text[i]);
        addresses[i] = text[i];
    }
    for (uint32_t i = 0; i < plan.n_shards; i++) {
        char path[128];
        hk_center_server_options o;
        bed_server_options(&o, &addresses[i]);
        o.center = opt;
        o.key = &key;
        o.shards = addresses;
        o.shard = i;
        o.n_shards = plan.n_shards;
        o.hello_ms = 20000; // a loaded machine under a sanitizer
        if (plan.file) {
            snprintf(path, sizeof path, "%s/center%u-%u", folder, counter, i);
            o.path = path;
        }
        HKI_TRY(hk_center_server_start(&o, &servers[n_servers]));
        addresses[i] = hk_center_server_address(servers[n_servers++], 0);
    }
    hk_connect_options c;
    bed_connect_options(&c, addresses, plan.n_shards);
    c.key = &key;
    return hk_center_connect(&c, layout, out);
}

static void run(const char *scheme, uint32_t n_shards, bool file) {
    plan.scheme = scheme;
    plan.n_shards = n_shards;
    plan.file = file;
    suite_center_run(create);
    for (size_t i = 0; i < n_servers; i++)
        hk_center_server_stop(servers[i]);
    n_servers = 0;
}

static void test_inproc(void **state) {
    (void)state;
    run("inproc", 1, false);
}

static void test_unix(void **state) {
    (void)state;
    run("unix", 1, true);
}

static void test_tcp(void **state) {
    (void)state;
    run("tcp", 1, false);
}

static void test_tls(void **state) {
    (void)state;
    run("tls", 1, false);
}

static void test_shm(void **state) {
    (void)state;
    run("shm", 1, false);
    run("shm", 1, true);
}

static void test_shards(void **state) {
    (void)state;
    run("unix", 2, true);
    run("shm", 3, false);
}

static int setup(void **state) {
    (void)state;
    bed_folder_make(folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    bed_folder_remove(folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inproc), cmocka_unit_test(test_unix),
        cmocka_unit_test(test_tcp),    cmocka_unit_test(test_tls),
        cmocka_unit_test(test_shm),    cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
