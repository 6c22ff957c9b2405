// cmd_version.c - the version, what was built in, what this CPU has.
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include "core/cli.h"
#include "experiment/experiment.h"

// Parts that the build may leave out.
static const struct {
    const char *name;
    bool on;
} parts[] = {
#ifdef HKI_HAVE_ONEDNN
    {"onednn", true},
#else
    {"onednn", false},
#endif
#ifdef HKI_HAVE_IMAGES
    {"images", true},
#else
    {"images", false},
#endif
#ifdef HKI_HAVE_METRICS
    {"metrics", true},
#else
    {"metrics", false},
#endif
    {"tls", true},
};

static const char *isa_name(hk_isa isa) {
    return isa == HK_ISA_V4   ? "x86-64-v4"
           : isa == HK_ISA_V3 ? "x86-64-v3"
                              : "base";
}

// What of the instruction sets that matter here this CPU has, with blanks
// between; "" where it cannot be asked.
static char *features(void) {
    char *text = cli_strdup("");
#if defined(__x86_64__)
#define ASK(name)                                                              \
    if (__builtin_cpu_supports(name)) {                                        \
        char *longer = cli_printf("%s%s" name, text, *text ? " " : "");        \
        free(text);                                                            \
        text = longer;                                                         \
    }
    ASK("sse4.2")
    ASK("avx")
    ASK("avx2")
    ASK("fma")
    ASK("avx512f")
    ASK("avx512bw")
    ASK("avx512vl")
    ASK("avx512vnni")
    ASK("avx512bf16")
#undef ASK
#endif
    return text;
}

#if defined(__clang__)
#define COMPILER __VERSION__ // names itself
#else
#define COMPILER "gcc " __VERSION__
#endif

// The list of backends as JSON; one that cannot be loaded is left out.
static void print_backends_json(void) {
    const char *comma = "";
    printf("},\"backends\":[");
    for (size_t i = 0; i < hk_backend_count(); i++) {
        hk_backend_info be;
        if (hk_backend_get_info(i, &be) != HK_OK)
            continue;
        printf("%s{\"name\":\"%s\",\"version\":\"%s\",\"isa\":\"%s\","
               "\"device\":\"%s\",\"devices\":%u}",
               comma, be.name, be.version, isa_name(be.isa), be.device,
               be.device_count);
        comma = ",";
    }
    printf("]");
}

static void print_backends(void) {
    for (size_t i = 0; i < hk_backend_count(); i++) {
        hk_backend_info be;
        printf("%-10s ", i ? "" : "backends");
        if (hk_backend_get_info(i, &be) == HK_OK)
            printf("%s on %u %s%s%s%s%s\n", be.name, be.device_count, be.device,
                   *be.version ? ", " : "", be.version, *be.file ? ", " : "",
                   be.file);
        else
            printf("%s\n", hk_last_error());
    }
}

static int run(const cli_args *a) {
    hk_context *ctx;
    const hk_status s = hk_context_create(NULL, &ctx);
    if (s != HK_OK)
        return cli_status(s);
    hk_context_info info;
    hk_context_get_info(ctx, &info);
    hk_context_destroy(ctx);
    const char *isa = isa_name(info.isa);
    const unsigned threads = info.threads;
    struct utsname u;
    if (uname(&u) != 0)
        memset(&u, 0, sizeof u);
    const bool json = cli_has(a, "json");
    char *const has = features();
    if (json)
        printf("{\"version\":\"%s\",\"isa\":\"%s\",\"features\":\"%s\","
               "\"cores\":%u,\"parts\":{",
               hk_version(), isa, has, threads);
    else
        printf("hooke %s\n", hk_version());
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (json)
            printf("%s\"%s\":%s", i ? "," : "", parts[i].name,
                   parts[i].on ? "true" : "false");
        else
            printf("%-10s %s\n", parts[i].name, parts[i].on ? "yes" : "no");
    if (json) {
        print_backends_json();
        printf(",\"cuda\":");
        device_json(stdout);
        printf("}\n");
    } else {
        print_backends();
        device_print(10);
        printf("%-10s %s, kernels for %s, %u cores\n%-10s %s\n%-10s %s\n",
               "cpu", u.machine, isa, threads, "features", has, "compiler",
               COMPILER);
    }
    free(has);
    return CLI_DONE;
}

static const cli_option options[] = {
    CLI_SWITCH("json", 0, "prints one JSON object"), {0}};

const cli_command cmd_version = {
    .name = "version",
    .operands = "",
    .summary = "the version, build options and CPU features",
    .about = "Prints the version, which optional parts were built in, the "
             "instruction set that Hooke's kernels use on this machine, and "
             "its GPUs, or the reason why none can be used.",
    .examples = "hooke version",
    .options = options,
    .run = run};
