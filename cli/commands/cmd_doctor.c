// cmd_doctor.c - what was detected: machine, build, cluster, and what is odd.
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "core/cli.h"
#include "experiment/data_parts.h"

const char *cli_getenv(void *user, const char *name) {
    (void)user;
    return getenv(name);
}

static void machine(void) {
    hk_context *ctx;
    if (hk_context_create(NULL, &ctx) != HK_OK)
        return;
    hk_context_info info;
    hk_context_get_info(ctx, &info);
    hk_context_destroy(ctx);
    printf("cores        %u\n", info.threads);
    printf("kernels      %s\n", info.isa == HK_ISA_V4   ? "AVX-512"
                                : info.isa == HK_ISA_V3 ? "AVX2"
                                                        : "baseline; slow");
    for (size_t i = 0; i < hk_backend_count(); i++) {
        hk_backend_info be;
        printf("%-12s ", i == 0 ? "backends" : "");
        if (hk_backend_get_info(i, &be) == HK_OK)
            printf("%s, %u %s%s%s%s\n", be.name, be.device_count, be.device,
                   i == 0 ? " (default)" : "", *be.file ? ", " : "", be.file);
        else
            printf("%s\n", hk_last_error());
    }
    device_print(12);
    const double pages = (double)sysconf(_SC_PHYS_PAGES);
    printf("memory       %s\n",
           cli_bytes(pages * (double)sysconf(_SC_PAGESIZE)));
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        printf("open files   %llu%s\n", (unsigned long long)files.rlim_cur,
               files.rlim_cur < 1024 ? " (low for a center: ulimit -n 4096)"
                                     : "");
    struct statvfs fs;
    if (statvfs(".", &fs) == 0) {
        const double room = (double)fs.f_bavail * (double)fs.f_frsize;
        printf("disk here    %s free%s\n", cli_bytes(room),
               room < 1e9 ? " (not enough for many checkpoints)" : "");
    }
    if (access(".", W_OK) != 0)
        printf("this folder  cannot be written; choose another one with "
               "--model-dir\n");
    const char *threads = getenv("OMP_NUM_THREADS");
    if (threads)
        printf("threads      OMP_NUM_THREADS=%s limits the kernels\n", threads);
}

// *workers: that the cluster is to have; 0: it does not say.
static int cluster(const cli_args *a, uint32_t *workers) {
    hk_cluster_options o;
    hk_cluster_options_init(&o, sizeof o);
    o.getenv = cli_getenv;
    hk_cluster_config *c;
    const hk_status s = hk_cluster_config_create(&o, &c);
    if (s != HK_OK) {
        cli_status(s);
        return CLI_USAGE; // a description that makes no sense
    }
    hk_cluster_info info;
    hk_cluster_config_get_info(c, &info);
    *workers = info.is_local ? 0 : info.n_workers;
    if (cli_has(a, "tf-config")) {
        printf("%s\n", info.json);
    } else {
        printf("\ncluster\n");
        for (const char *p = info.explain; *p;) {
            const size_t n = strcspn(p, "\n");
            printf("  %.*s\n", (int)n, p);
            p += n + (p[n] == '\n');
        }
    }
    hk_cluster_config_destroy(c);
    return 0;
}

// Workers are those of the cluster, of --workers or of the experiment.
static int data(const cli_args *a, uint32_t workers) {
    experiment *x;
    settings s;
    int code = experiment_open(a, cli_operand(a, 0), &x);
    if (!code)
        code = settings_read(x, a, &s);
    if (!code && !workers)
        workers = s.config.workers ? s.config.workers : 1;
    return code ? code : data_parts_tell(x, workers);
}

static int run(const cli_args *a) {
    uint32_t workers = 0;
    if (!cli_has(a, "tf-config")) {
        printf("hooke        %s\n", hk_version());
        machine();
    }
    const int code = cluster(a, &workers);
    return code || !cli_operand(a, 0) ? code : data(a, workers);
}

static const cli_option options[] = {
    EXPERIMENT_OPTIONS,
    CLI_OPTION(
        "workers", 'n', CLI_COUNT, "N",
        "number of workers that share the data; default: as in the experiment"),
    CLI_SWITCH("tf-config", 0, "prints the cluster as TF_CONFIG, in one line"),
    {0}};

const cli_command cmd_doctor = {
    .name = "doctor",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary =
        "show the detected machine and cluster, and warn about contradictions",
    .about =
        "Shows cores, kernels, GPUs, memory, limits, and which launcher "
        "(TF_CONFIG, Slurm, mpirun, torchrun, flags) describes the cluster, "
        "with the role of this process. Contradictions are errors. With an "
        "experiment, doctor also shows how its training data will be divided "
        "among the workers, how many bytes each of them reads, and warnings.",
    .examples = "hooke doctor\nhooke doctor adult --data-dir ~/data "
                "--workers 8\nsrun -n4 hooke doctor --tf-config",
    .options = options,
    .run = run};
