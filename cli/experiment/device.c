// device.c - run.device and run.precision: what computes, and in words.
#include <stdlib.h>
#include <string.h>
#include "experiment/experiment.h"

static const char *const precisions[] = {[HK_PRECISION_DEFAULT] = "tf32",
                                         [HK_PRECISION_TF32] = "tf32",
                                         [HK_PRECISION_FP32] = "fp32",
                                         [HK_PRECISION_BF16] = "bf16"};

static int read_precision(const tree *t, hk_run_config *c) {
    const char *const text = tree_text(t, "tf32");
    for (int i = HK_PRECISION_TF32; i <= HK_PRECISION_BF16; i++)
        if (strcmp(text, precisions[i]) == 0) {
            c->precision = (hk_precision)i;
            return 0;
        }
    return cli_fail("%sprecision is '%s'; it has to be tf32, fp32 or bf16",
                    tree_where(t), text);
}

// A center, an export and the like compute nothing: they need no device.
int settings_device(const tree *run, const cli_args *a, hk_run_config *c) {
    const char *const asked = tree_text(tree_get(run, "device"), "cpu");
    if (cli_command_of(a)->computes)
        c->device = cli_string(a, "device", asked);
    return read_precision(tree_get(run, "precision"), c);
}

char *device_words(const hk_run_config *c) {
    hk_device d;
    char text[256];
    if (hk_device_find(c->device, &d) != HK_OK || d.count == 0 ||
        (c->backend != NULL && strcmp(c->backend, d.backend) != 0))
        return NULL;
    const uint32_t worker = c->first_worker == UINT32_MAX ? 0 : c->first_worker;
    const uint32_t i = c->workers > 1 ? 0 : worker % d.count;
    const uint32_t used = c->workers < d.count ? c->workers : d.count;
    if (hk_device_text(&d, i, text, sizeof text) != HK_OK)
        return NULL;
    CLI_FREED char *more =
        used > 1 ? cli_printf(" to %s:%u, in turn", d.backend, used - 1)
                 : cli_strdup("");
    return cli_printf("%s:%u%s (%s), products in %s", d.backend, d.first + i,
                      more, text, precisions[c->precision]);
}

const char *device_cpu_precision(const hk_run_config *c) {
    return c->precision == HK_PRECISION_BF16 ? ", products in bf16" : "";
}

// Why no card computes.
static const char *why_cpu(const hk_run_config *c) {
    const char *const named = getenv("HOOKE_BACKEND");
    hk_device d;
    if (c->backend != NULL)
        return "run.backend is set";
    if (named != NULL && named[0] != '\0')
        return "HOOKE_BACKEND is set";
    return hk_device_find("cuda", &d) != HK_OK
               ? hk_last_error()
               : "no GPU was found at the start";
}

void device_tell_cpu(const hk_run_config *c) {
    if (c->device != NULL && strcmp(c->device, "auto") == 0)
        cli_note("device auto: using the CPU: %s", why_cpu(c));
}

void device_tell(const hk_run_config *c) {
    char *const words = device_words(c);
    if (words)
        cli_note("computing on %s", words);
    else
        device_tell_cpu(c);
    free(words);
}

// ---- for people who want to know what there is --------------------------------

// The i-th in words, or what went wrong.
static void one_text(const hk_device *d, uint32_t i, char *text, size_t size) {
    if (hk_device_text(d, i, text, size) != HK_OK)
        snprintf(text, size, "%s", hk_last_error());
}

void device_print(int width) {
    hk_backend_info be;
    hk_device d;
    char text[256];
    printf("%-*s ", width, "cuda");
    const bool loaded = hk_backend_find("cuda", &be) == HK_OK;
    if (loaded)
        printf("%s, %s", be.version, be.file);
    if (hk_device_find("cuda", &d) != HK_OK) {
        printf("%s%s\n", loaded ? "; " : "", hk_last_error());
        return;
    }
    printf("\n");
    for (uint32_t i = 0; i < d.count; i++) {
        one_text(&d, i, text, sizeof text);
        printf("%-*s cuda:%u %s\n", width, "", i, text);
    }
}

void device_json(FILE *f) {
    hk_backend_info be;
    hk_device d;
    char text[256];
    fprintf(f, "{");
    if (hk_backend_find("cuda", &be) == HK_OK) {
        fprintf(f, "\"version\":");
        cli_json_string(f, be.version);
        fprintf(f, ",\"file\":");
        cli_json_string(f, be.file);
        fprintf(f, ",");
    }
    if (hk_device_find("cuda", &d) != HK_OK) {
        fprintf(f, "\"devices\":[],\"why\":");
        cli_json_string(f, hk_last_error());
        fprintf(f, "}");
        return;
    }
    fprintf(f, "\"devices\":[");
    for (uint32_t i = 0; i < d.count; i++) {
        one_text(&d, i, text, sizeof text);
        fputs(i ? "," : "", f);
        cli_json_string(f, text);
    }
    fprintf(f, "]}");
}
