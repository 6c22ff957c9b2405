// pictures.c - run.images: the first pictures of the training data in the event
// files, to see that they are what was meant.
#include <stdlib.h>
#include "experiment/csv_table.h"
#include "experiment/run_record.h"
#include "hooke/event.h"
#include "run/show.h"

static const hk_value *picture_of(const hk_element *e) {
    for (size_t i = 0; i < e->count; i++) {
        const hk_value *v = &e->values[i];
        if (v->role == HK_FEATURE && v->dtype == HK_U8 &&
            (v->shape.rank == 2 || v->shape.rank == 3))
            return v;
    }
    return NULL;
}

static hk_status write_one(hk_event_writer *w, const hk_value *v, int64_t n) {
    const hk_shape s = hk_tensor_shape(v->tensor);
    CLI_FREED char *tag = cli_printf("train/%s_%lld", v->name, (long long)n);
    return hk_event_image(w, tag, 0, hk_tensor_data(v->tensor), (int)s.dim[0],
                          (int)s.dim[1], s.rank == 3 ? (int)s.dim[2] : 1);
}

static hk_status write_first(const job *j, hk_dataset *d, int64_t most) {
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.suffix = ".images";
    hk_event_writer *w = NULL;
    CLI_SCOPED(hk_iter_destroy_at) hk_iter *it = NULL;
    const hk_element *e;
    hk_status s = hk_iter_create(d, NULL, &it);
    if (s == HK_OK)
        s = hk_event_open(j->s.model_dir, &o, &w);
    for (int64_t i = 0; s == HK_OK && i < most; i++) {
        s = hk_iter_next(it, &e);
        if (s == HK_OK)
            s = write_one(w, picture_of(e), i);
    }
    const hk_status closed = hk_event_close(w);
    return s != HK_OK && s != HK_E_END ? s : closed;
}

int write_pictures(const job *j) {
    const int64_t most = tree_int(tree_path(j->x->root, "run.images"), 0);
    if (most <= 0 || j->s.config.not_chief)
        return 0;
    const data_user u = {.x = j->x, .set = "train"};
    hk_dataset *d = data_examples(&u);
    hk_status s = hk_dataset_status(d);
    if (s == HK_OK && !picture_of(hk_dataset_spec(d)))
        cli_note("run.images: the training data has no images of type uint8");
    else if (s == HK_OK)
        s = write_first(j, d, most);
    hk_dataset_release(d);
    return cli_status(s);
}
