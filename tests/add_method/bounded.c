// What "bounded" computes: as DOWNPOUR, but no value moves by more than MOST in
// one exchange; the rest is lost.
#define MOST 1000.0f

static float bounded(float d) {
    return d > MOST ? MOST : d < -MOST ? -MOST : d;
}

static void bounded_worker(const hki_worker_half *w) {
    for (int64_t i = 0; i < w->n; i++) {
        const float c = w->c[i];
        w->d[i] = w->state ? (w->x[i] - c) / (float)w->live
                           : bounded(w->x[i] - w->view[i]);
        w->view[i] = c;
    }
    encode(w);
    for (int64_t i = 0; i < w->n; i++)
        w->x[i] = w->view[i] += w->d[i];
}

static void bounded_undo(const hki_worker_half *w) {
    for (int64_t i = 0; i < w->n; i++)
        w->view[i] -= w->d[i];
}

static hk_status bounded_center(const hki_center_half *h, float *d,
                                double *squares) {
    *squares = 0;
    for (int64_t i = 0; i < h->n; i++) {
        if (i == h->n / 2 && h->halfway != NULL)
            h->halfway(h->user);
        const float v = d[i];
        h->c[i] += v;
        *squares += (double)v * (double)v;
    }
    hki_center_changed(h);
    return HK_OK;
}

static void bounded_in_place(const hki_center_half *h,
                             const hki_worker_half *w) {
    for (int64_t i = 0; i < w->n; i++) {
        h->c[i] += w->state ? (w->x[i] - h->c[i]) / (float)w->live
                            : bounded(w->x[i] - w->view[i]);
        w->x[i] = w->view[i] = h->c[i];
    }
}
