// session_run.c - a run of a session: the steps of its plan, one after the
// other or recorded as one piece, and what was measured of them.
#include <inttypes.h>
#include <math.h>
#include "graph/session_state.h"

static bool all_finite(const void *data, hk_dtype t, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double x = t == HK_F64 ? ((const double *)data)[i]
                                     : (double)((const float *)data)[i];
        if (!isfinite(x))
            return false;
    }
    return true;
}

static hk_status check_finite(hk_session *s, size_t i) {
    const hki_call *c = s->plan->steps[i].call;
    for (int o = 0; o < c->n_out; o++) {
        const hk_node *x = &c->out[o];
        const void *data = hki_session_arg(s, i, c->n_in + o);
        int64_t n;
        // Rows of a sparse gradient beyond its count hold no values.
        if (data == NULL || (c->op->flags & HKI_OP_IS_SPARSE) ||
            (x->dtype != HK_F32 && x->dtype != HK_F64))
            continue;
        HKI_TRY(hk_shape_count(x->shape, &n));
        if (!all_finite(data, x->dtype, n))
            return hki_fail(HK_E_NOT_FINITE,
                            "step %" PRIu64 ": %s is the first node with a "
                            "NaN or infinity (output %d)",
                            s->step, c->name, o);
    }
    return HK_OK;
}

static hk_status name_error(const hk_session *s, size_t i, hk_status st) {
    return hki_fail(st, "%s: %s", s->plan->steps[i].call->name,
                    hk_last_error());
}

// Runs the steps of one time, from i on; gives how many there were.
static hk_status run_time(hk_session *s, size_t i, size_t *count) {
    const hk_plan *p = s->plan;
    size_t n = 1, failed = 0;
    while (i + n < p->n_steps && p->steps[i + n].time == p->steps[i].time)
        n++;
    *count = n;
    hk_status st;
    if (n == 1)
        st = p->backend->kernel_run(s->calls[i].kernel, s->calls[i].state,
                                    s->queue, s->calls[i].args,
                                    s->calls[i].scratch);
    else
        st = p->backend->kernel_run_many(s->queue, &s->calls[i], n, &failed);
    return st == HK_OK ? HK_OK : name_error(s, i + failed, st);
}

// Steps of one time are neighbours, so that i jumps over those that ran.
static hk_status run_steps(hk_session *s) {
    for (size_t i = 0, n = 1; i < s->plan->n_steps; i += n) {
        const bool timed = s->step_ns != NULL || s->tracing;
        const int64_t t0 = timed ? hki_now_ns() : 0;
        HKI_TRY(run_time(s, i, &n));
        if (s->step_ns != NULL)
            s->step_ns[i] += hki_now_ns() - t0;
        if (s->tracing) {
            s->trace[2 * i] = t0;
            s->trace[2 * i + 1] = hki_now_ns();
        }
        for (size_t k = 0; s->opt.check_finite && k < n; k++)
            HKI_TRY(check_finite(s, i + k));
    }
    return HK_OK;
}

// The number of the step that the loss comes from; n_steps: of none.
static size_t loss_step(const hk_plan *p) {
    size_t found = p->n_steps;
    for (size_t i = 0; i < p->n_steps; i++) {
        const hki_step *const st = &p->steps[i];
        for (int k = st->call->n_in; k < st->n_args; k++)
            if (st->args[k].segment == p->loss.segment &&
                st->args[k].offset == p->loss.offset)
                found = i;
    }
    return found;
}

static hk_status capture(hk_session *s) {
    const hk_plan *p = s->plan;
    const hki_early loss = {.at = hki_session_loc(s, p->loss),
                            .bytes = p->float_bytes,
                            .call = loss_step(p)};
    s->has_early =
        p->has_loss && loss.call < p->n_steps && p->backend->plan_early != NULL;
    return p->backend->plan_capture(s->queue, s->calls, p->n_steps,
                                    s->has_early ? &loss : NULL, &s->captured);
}

// All steps at once; recorded by the first run.
static hk_status launch(hk_session *s) {
    const hk_plan *p = s->plan;
    size_t failed = 0;
    if (s->captured == NULL)
        HKI_TRY(capture(s));
    const hk_status st =
        p->backend->plan_launch(s->queue, s->captured, &failed);
    return st == HK_OK ? HK_OK : name_error(s, failed, st);
}

// Does somebody look at single steps?
static bool watched(const hk_session *s) {
    return s->step_ns != NULL || s->tracing || s->opt.check_finite;
}

// Inputs, and scalars that have changed. A run with a loss is not over for the
// caller before it has read the inputs.
static size_t list_values(const hk_session *s) {
    const hk_plan *p = s->plan;
    size_t n = 0;
    for (size_t i = 0; i < p->n_inputs; i++) {
        const hki_input_slot *const slot = &s->inputs[i];
        const bool fed = slot->fed != NULL;
        if (slot->own != NULL && p->inputs[i].bytes > 0)
            s->writes[n++] = (hki_write){
                .to = {slot->own, 0},
                .from = fed ? hk_tensor_data(slot->fed) : slot->stage,
                .bytes = p->inputs[i].bytes,
                .pinned =
                    !fed && p->has_loss && p->backend->host_alloc != NULL};
    }
    if (s->scalars_old && p->graph->scalars.n > 0)
        s->writes[n++] =
            (hki_write){.to = {s->scalars, 0},
                        .from = s->scalar_stage,
                        .bytes = p->graph->scalars.n * HKI_SCALAR_BYTES};
    return n;
}

// Elsewhere: what the host has for a run goes there.
static hk_status send_values(hk_session *s) {
    const hk_plan *p = s->plan;
    float *at;
    if (!s->apart)
        return HK_OK;
    const size_t n = list_values(s);
    if (p->backend->write_many != NULL)
        HKI_TRY(p->backend->write_many(s->queue, s->writes, n));
    for (size_t i = 0; p->backend->write_many == NULL && i < n; i++) {
        const hki_write *const w = &s->writes[i];
        HKI_TRY(p->backend->write(s->queue, w->to, w->from, w->bytes));
    }
    s->scalars_old = false;
    if (s->x == &s->bound) // its owner may have written to it
        s->bound.away_old = true;
    HKI_TRY(hki_vector_at(&s->grads, HKI_TO_WRITE, &at));
    return hki_vector_at(
        s->x, p->mode == HK_TRAIN ? HKI_TO_CHANGE : HKI_TO_READ, &at);
}

// Where a run is one piece the loss is there before its end, and the host goes
// on while gradients are made.
static hk_status look_at_loss(hk_session *s, bool launched, double *stage,
                              const void **out) {
    const hk_plan *p = s->plan;
    size_t failed = 0;
    if (!launched || !s->has_early)
        return hki_session_look(s, p->loss, p->float_bytes, stage, out);
    const hk_status st =
        p->backend->plan_early(s->queue, s->captured, stage, &failed);
    *out = stage;
    return st == HK_OK ? HK_OK : name_error(s, failed, st);
}

static hk_status fetch_loss(hk_session *s, bool launched) {
    const hk_plan *p = s->plan;
    const void *at;
    double stage;
    if (!p->has_loss)
        return HK_OK;
    HKI_TRY(look_at_loss(s, launched, &stage, &at));
    s->loss =
        p->float_bytes == 8 ? (float)*(const double *)at : *(const float *)at;
    return HK_OK;
}

hk_status hk_session_run(hk_session *s) {
    const hk_plan *p = s->plan;
    HKI_TRY(send_values(s));
    HKI_TRY(p->backend->queue_begin(s->queue, s->opt.seed, s->step));
    const bool whole = p->backend->plan_capture != NULL && !watched(s);
    const hk_status st = whole ? launch(s) : run_steps(s);
    hk_status end = p->backend->queue_end(s->queue);
    float *x;
    if (s->x == &s->bound && end == HK_OK) // its owner looks at it
        end = hki_vector_host(s->x, HKI_TO_READ, &x);
    if (st != HK_OK)
        return st;
    HKI_TRY(end);
    s->step++;
    return fetch_loss(s, whole);
}

hk_status hk_session_profile(const hk_session *s,
                             void (*write)(void *user, const char *text),
                             void *user) {
    if (s->step_ns == NULL)
        return hki_fail(
            HK_E_STATE,
            "session: profiling is off; create the session with profile");
    char line[512], shape[HKI_SHAPE_TEXT];
    for (size_t i = 0; i < s->plan->n_steps; i++) {
        const hki_call *c = s->plan->steps[i].call;
        snprintf(line, sizeof line, "%10.4f ms  %-36s %-20s %s\n",
                 (double)s->step_ns[i] * 1e-6, c->name,
                 hki_shape_text(c->out[0].shape, shape),
                 s->plan->backend->kernel_note(s->plan->steps[i].kernel));
        write(user, line);
    }
    return HK_OK;
}

hk_status hki_session_trace(hk_session *s, bool on) {
    if (on && s->trace == NULL)
        HKI_TRY(hki_zalloc_array(s->plan->n_steps * 2, sizeof *s->trace,
                                 &s->trace));
    s->tracing = on;
    return HK_OK;
}

size_t hki_session_trace_count(const hk_session *s) {
    return s->trace != NULL ? s->plan->n_steps : 0;
}

hki_trace_item hki_session_trace_item(const hk_session *s, size_t i) {
    const hki_step *st = &s->plan->steps[i];
    return (hki_trace_item){.name = st->call->name,
                            .note = s->plan->backend->kernel_note(st->kernel),
                            .begin_ns = s->trace[2 * i],
                            .end_ns = s->trace[2 * i + 1]};
}
