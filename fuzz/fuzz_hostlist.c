// fuzz_hostlist.c - host lists, tasks per node and hostfiles from arbitrary
// bytes, and a Slurm step that is described by them.
#include "base/base.h"
#include "launch/launch.h"
#include "hooke/roles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const char *list, *tasks;
} input;

// The first line is the list, the second the tasks of each node.
static const char *get(void *user, const char *name) {
    const input *const in = user;
    static const char *const fixed[][2] = {{"SLURM_JOB_ID", "77"},
                                           {"SLURM_STEP_ID", "0"},
                                           {"SLURM_PROCID", "1"},
                                           {"SLURM_NTASKS", "4"},
                                           {"SLURM_NODEID", "0"}};
    for (size_t i = 0; i < HKI_COUNT(fixed); i++)
        if (strcmp(name, fixed[i][0]) == 0)
            return fixed[i][1];
    if (strcmp(name, "SLURM_STEP_NODELIST") == 0)
        return in->list;
    return strcmp(name, "SLURM_STEP_TASKS_PER_NODE") == 0 ? in->tasks : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text;
    if (size > 4096 || hki_alloc_array(size + 1, 1, &text) != HK_OK)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    hki_arena a = {0};
    const char **hosts;
    uint32_t *slots, n;
    (void)hki_hostfile_parse(&a, text, size, "file", &hosts, &slots, &n);
    char *const second = strchr(text, '\n');
    if (second != NULL)
        *second = '\0';
    input in = {text, second == NULL ? "4" : second + 1};
    if (hki_hostlist_expand(&a, in.list, &hosts, &n) == HK_OK) {
        uint32_t *tasks;
        if (hki_arena_alloc(&a, n, sizeof *tasks, &tasks) == HK_OK)
            (void)hki_tasks_per_node(in.tasks, n, tasks);
    }
    hki_arena_deinit(&a);
    hk_cluster_options o;
    hk_cluster_options_init(&o, sizeof o);
    o.getenv = get;
    o.user = &in;
    hk_cluster_config *c = NULL;
    if (hk_cluster_config_create(&o, &c) == HK_OK)
        hk_cluster_config_destroy(c);
    hki_free(text);
    return 0;
}
