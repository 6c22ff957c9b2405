// copy_tensors.c - weights into another file.
#include "commands/copy_tensors.h"
#include <stdlib.h>
#include <string.h>

static const char step_name[] = "global_step";

hk_ckpt_format copy_format(const char *name) {
    return strcmp(name, "tf") == 0    ? HK_CKPT_TF
           : strcmp(name, "npz") == 0 ? HK_CKPT_NPZ
                                      : HK_CKPT_SAFETENSORS;
}

// ---- the step ---------------------------------------------------------------

// The global step, by Hooke's name, TensorFlow's or the metadata; -1: unknown.
static int64_t step_of(hk_ckpt *c) {
    static const char *const names[] = {HK_SECTION_RUN "global_step",
                                        step_name};
    const hk_shape scalar = hk_shape_make(0, NULL);
    int64_t step = -1;
    for (size_t i = 0; i < 2; i++)
        if (hk_ckpt_find(c, names[i]) &&
            hk_ckpt_read(c, names[i], HK_I64, &scalar, &step) == HK_OK)
            return step;
    const char *text = hk_ckpt_meta(c, "hooke.step");
    return text && cli_parse_int(text, &step) ? step : -1;
}

static bool has_step(const weights_copy *k) {
    const hk_ckpt_entry *e;
    for (size_t i = 0; (e = hk_ckpt_item(k->from, i)) != NULL; i++) {
        const char *name = k->name(k->user, e);
        if (name && strcmp(name, step_name) == 0)
            return true;
    }
    return false;
}

static hk_status add_step(const weights_copy *k, int64_t *step,
                          hk_name_map *more) {
    if ((k->format != HK_CKPT_TF && !k->step) || *step < 0 || has_step(k))
        return HK_OK;
    return hk_name_map_add(
        more, &(hk_named){.name = step_name, .dtype = HK_I64, .data = step});
}

// ---- the copy ---------------------------------------------------------------

static void tell(const weights_copy *k, const char *text) {
    for (const char *p = text; *p;) {
        const size_t n = strcspn(p, "\n");
        cli_note("%s: %.*s", k->path, (int)n, p);
        p += n + (p[n] == '\n');
    }
}

int copy_weights(weights_copy *k) {
    hk_write_options w;
    hk_copy_options o;
    hk_restore_report r = {0};
    hk_name_map *more = NULL;
    int64_t step = step_of(k->from);
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)step);
    const hk_meta meta = {"hooke.step", text};
    hk_write_options_init(&w, sizeof w);
    hk_copy_options_init(&o, sizeof o);
    w.format = k->format;
    w.meta = &meta;
    w.n_meta = step >= 0;
    o.write = &w;
    o.name = k->name;
    o.user = k->user;
    hk_status s = hk_name_map_create(&more);
    if (s == HK_OK)
        s = add_step(k, &step, more);
    o.more = more;
    if (s == HK_OK)
        s = hk_ckpt_copy(k->from, k->path, &o, &r);
    if (s == HK_OK)
        tell(k, r.text);
    k->taken = r.taken;
    k->left = r.left;
    hk_restore_report_deinit(&r);
    hk_name_map_destroy(more);
    return cli_status(s);
}
