// session.c - one set of values that runs a plan.
//
// Invariant: everything a run touches is allocated when the session is made.
// A run resolves nothing and allocates nothing: kernels hold (buffer, offset)
// pairs, and what can change place (parameters bound elsewhere, a fed tensor)
// is a view, a buffer whose address is moved under them (buffer_rewrap).
#include <inttypes.h>
#include <math.h>
#include "graph/plan.h"

typedef struct input_slot {
    hki_buffer *own;   // the session's memory
    hki_buffer *view;  // what kernels read: own, or a fed tensor's memory
    hk_tensor *tensor; // over own
    hk_tensor *fed;    // retained while it is read
} input_slot;

// calls[i], args[i * HKI_MAX_ARGS ...] and step_ns[i] belong to step i of the
// plan; inputs, outputs and scalar_values are numbered as the plan numbers
// them.
struct hk_session {
    hk_plan *plan;
    hk_session_options opt;
    hki_queue *queue;
    hki_buffer *own_params, *params; // params is a view
    hki_buffer *grads, *scratch, *scalars;
    input_slot *inputs;
    hk_tensor **outputs;
    float *scalar_values;
    hki_kernel_call *calls; // one per step of the plan
    hki_loc *args;          // HKI_MAX_ARGS per step
    size_t n_states;        // calls whose state exists
    int64_t *step_ns;
    int64_t *trace; // begin and end per step; NULL until it is asked for
    bool tracing;
    uint64_t step;
    float loss;
};

HKI_OPTIONS(hk_session_options, profile)

// ---- memory ---------------------------------------------------------------

static hk_status make_view(const hk_session *s, hki_buffer *own, size_t bytes,
                           hki_buffer **out) {
    const hki_backend *be = s->plan->backend;
    return be->buffer_wrap(s->plan->device, be->buffer_host(own), bytes, out);
}

static hk_status make_vectors(hk_session *s) {
    const hk_plan *p = s->plan;
    const hki_backend *be = p->backend;
    const size_t n = (size_t)hki_layout_size(p->layout) * p->float_bytes;
    HKI_TRY(be->buffer_create(p->device, n, &s->own_params));
    HKI_TRY(make_view(s, s->own_params, n, &s->params));
    const int64_t n_grad = p->mode == HK_TRAIN ? p->n_grad : 0;
    HKI_TRY(be->buffer_create(p->device, (size_t)n_grad * p->float_bytes,
                              &s->grads));
    HKI_TRY(be->buffer_create(p->device, p->scratch_bytes, &s->scratch));
    return be->buffer_create(p->device, p->graph->scalars.n * HKI_SCALAR_BYTES,
                             &s->scalars);
}

static hk_status make_inputs(hk_session *s) {
    const hk_plan *p = s->plan;
    HKI_TRY(hki_zalloc_array(p->n_inputs, sizeof *s->inputs, &s->inputs));
    for (size_t i = 0; i < p->n_inputs; i++) {
        const hki_plan_input *in = &p->inputs[i];
        input_slot *slot = &s->inputs[i];
        if (in->dtype == 0)
            continue;
        HKI_TRY(p->backend->buffer_create(p->device, in->bytes, &slot->own));
        HKI_TRY(make_view(s, slot->own, in->bytes, &slot->view));
        HKI_TRY(hk_tensor_wrap(in->dtype, in->shape,
                               p->backend->buffer_host(slot->own),
                               &slot->tensor));
    }
    return HK_OK;
}

// The plan knows places as (segment, offset); a session gives each segment its
// buffer. Inputs have one segment each.
static hki_loc resolve(const hk_session *s, hki_value_place at) {
    switch (at.segment) {
    case HKI_SEG_NONE:
        return (hki_loc){0};
    case HKI_SEG_SCRATCH:
        return (hki_loc){s->scratch, at.offset};
    case HKI_SEG_PARAMS:
        return (hki_loc){s->params, at.offset};
    case HKI_SEG_GRADS:
        return (hki_loc){s->grads, at.offset};
    case HKI_SEG_CONSTANTS:
        return (hki_loc){s->plan->constants, at.offset};
    case HKI_SEG_SCALARS:
        return (hki_loc){s->scalars, at.offset};
    default:
        return (hki_loc){s->inputs[at.segment - HKI_SEG_INPUT].view, at.offset};
    }
}

static char *host(const hk_session *s, hki_value_place at) {
    const hki_loc l = resolve(s, at);
    return (char *)s->plan->backend->buffer_host(l.buffer) + l.offset;
}

static hk_status make_steps(hk_session *s) {
    const hk_plan *p = s->plan;
    HKI_TRY(hki_zalloc_array(p->n_steps, sizeof *s->calls, &s->calls));
    HKI_TRY(
        hki_zalloc_array(p->n_steps * HKI_MAX_ARGS, sizeof *s->args, &s->args));
    if (s->opt.profile)
        HKI_TRY(hki_zalloc_array(p->n_steps, sizeof *s->step_ns, &s->step_ns));
    for (size_t i = 0; i < p->n_steps; i++) {
        const hki_step *st = &p->steps[i];
        hki_loc *args = s->args + i * HKI_MAX_ARGS;
        hki_kernel_call *call = &s->calls[i];
        HKI_TRY(p->backend->state_create(st->kernel, &call->state));
        s->n_states++;
        for (int k = 0; k < st->n_args; k++)
            args[k] = resolve(s, st->args[k]);
        call->kernel = st->kernel;
        call->args = args;
        call->scratch = resolve(s, st->scratch);
    }
    return HK_OK;
}

static hk_status make_outputs(hk_session *s) {
    const hk_plan *p = s->plan;
    HKI_TRY(hki_zalloc_array(p->n_outputs, sizeof *s->outputs, &s->outputs));
    for (size_t i = 0; i < p->n_outputs; i++)
        HKI_TRY(hk_tensor_wrap(p->outputs[i].dtype, p->outputs[i].shape,
                               host(s, p->outputs[i].place), &s->outputs[i]));
    return HK_OK;
}

// ---- values ---------------------------------------------------------------

static void store_scalar(hk_session *s, size_t i, float value) {
    char *at = host(s, (hki_value_place){.segment = HKI_SEG_SCALARS,
                                         .offset = i * HKI_SCALAR_BYTES});
    s->scalar_values[i] = value;
    if (s->plan->float_bytes == 8)
        *(double *)at = (double)value;
    else
        *(float *)at = value;
}

static hk_status init_values(hk_session *s) {
    const hk_plan *p = s->plan;
    const size_t n = (size_t)hki_layout_size(p->layout);
    void *own = p->backend->buffer_host(s->own_params);
    HKI_TRY(hki_zalloc_array(p->graph->scalars.n, sizeof *s->scalar_values,
                             &s->scalar_values));
    for (size_t i = 0; i < p->graph->scalars.n; i++)
        store_scalar(s, i, p->graph->scalars.data[i].dflt);
    if (p->float_bytes == 4)
        return hk_plan_init_values(p, s->opt.seed, own);
    float *x;
    HKI_TRY(hki_alloc_array(n, sizeof *x, &x));
    const hk_status st = hk_plan_init_values(p, s->opt.seed, x);
    for (size_t i = 0; st == HK_OK && i < n; i++)
        ((double *)own)[i] = (double)x[i];
    hki_free(x);
    return st;
}

// ---- create and destroy ---------------------------------------------------

static hk_status build(hk_session *s) {
    HKI_TRY(s->plan->backend->queue_create(s->plan->device, &s->queue));
    HKI_TRY(make_vectors(s));
    HKI_TRY(make_inputs(s));
    HKI_TRY(init_values(s));
    HKI_TRY(make_steps(s));
    return make_outputs(s);
}

hk_status hk_session_create(hk_plan *p, const hk_session_options *opt,
                            hk_session **out) {
    if (p == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "session: plan or out is NULL");
    hk_session_options o;
    hk_session_options_init(&o, sizeof o);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "session options"));
    hk_session *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->plan = hk_plan_retain(p);
    s->opt = o;
    hk_status st = build(s);
    if (st == HK_OK && o.pin)
        st = p->backend->queue_pin(s->queue, o.first_cpu);
    if (st != HK_OK) {
        hk_session_destroy(s);
        return st;
    }
    *out = s;
    return HK_OK;
}

static void destroy_input(const hki_backend *be, input_slot *slot) {
    hk_tensor_release(slot->tensor);
    hk_tensor_release(slot->fed);
    if (slot->view != NULL)
        be->buffer_destroy(slot->view);
    if (slot->own != NULL)
        be->buffer_destroy(slot->own);
}

void hk_session_destroy(hk_session *s) {
    if (s == NULL)
        return;
    const hki_backend *be = s->plan->backend;
    for (size_t i = 0; i < s->n_states; i++)
        be->state_destroy(s->calls[i].state);
    for (size_t i = 0; s->outputs != NULL && i < s->plan->n_outputs; i++)
        hk_tensor_release(s->outputs[i]);
    for (size_t i = 0; s->inputs != NULL && i < s->plan->n_inputs; i++)
        destroy_input(be, &s->inputs[i]);
    hki_buffer *const buffers[] = {s->params, s->own_params, s->grads,
                                   s->scratch, s->scalars};
    for (size_t i = 0; i < HKI_COUNT(buffers); i++)
        if (buffers[i] != NULL)
            be->buffer_destroy(buffers[i]);
    if (s->queue != NULL)
        be->queue_destroy(s->queue);
    hki_free(s->calls);
    hki_free(s->args);
    hki_free(s->step_ns);
    hki_free(s->trace);
    hki_free(s->inputs);
    hki_free(s->outputs);
    hki_free(s->scalar_values);
    hk_plan_release(s->plan);
    hki_free(s);
}

// ---- access ---------------------------------------------------------------

hk_plan *hk_session_plan(const hk_session *s) {
    return s->plan;
}

void *hki_session_values(hk_session *s) {
    return s->plan->backend->buffer_host(s->own_params);
}

float *hk_session_params(hk_session *s) {
    return s->plan->float_bytes == 4 ? hki_session_values(s) : NULL;
}

float *hk_session_grads(hk_session *s) {
    return s->plan->float_bytes == 4 ? s->plan->backend->buffer_host(s->grads)
                                     : NULL;
}

int64_t hki_session_grad_count(const hk_session *s) {
    return s->plan->mode == HK_TRAIN ? s->plan->n_grad : 0;
}

// Outputs that are variables or inputs themselves follow their memory.
static hk_status follow_outputs(hk_session *s, int32_t segment) {
    const hk_plan *p = s->plan;
    for (size_t i = 0; i < p->n_outputs; i++) {
        if (p->outputs[i].place.segment != segment)
            continue;
        hk_tensor *t;
        HKI_TRY(hk_tensor_wrap(p->outputs[i].dtype, p->outputs[i].shape,
                               host(s, p->outputs[i].place), &t));
        hk_tensor_release(s->outputs[i]);
        s->outputs[i] = t;
    }
    return HK_OK;
}

hk_status hk_session_bind_params(hk_session *s, float *x) {
    const hk_plan *p = s->plan;
    if (p->float_bytes != 4)
        return hki_fail(HK_E_DTYPE, "session: only float32 plans can be bound "
                                    "to another vector");
    void *at = x != NULL ? (void *)x : hki_session_values(s);
    p->backend->buffer_rewrap(s->params, at,
                              (size_t)hki_layout_size(p->layout) * sizeof *x);
    return follow_outputs(s, HKI_SEG_PARAMS);
}

static hk_status find_input(const hk_session *s, const char *name,
                            size_t *out) {
    const hk_plan *p = s->plan;
    for (size_t i = 0; name != NULL && i < p->n_inputs; i++)
        if (strcmp(p->inputs[i].name, name) == 0) {
            *out = i;
            return HK_OK;
        }
    char known[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < p->n_inputs && used < sizeof known; i++) {
        const int n = snprintf(known + used, sizeof known - used, "%s%s",
                               i ? ", " : "", p->inputs[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
    return hki_fail(HK_E_NOT_FOUND, "no input named %s; the model has: %s",
                    name ? name : "(null)", known);
}

hk_status hk_session_feed(hk_session *s, const char *name, const hk_tensor *t) {
    size_t i = 0;
    HKI_TRY(find_input(s, name, &i));
    const hki_plan_input *in = &s->plan->inputs[i];
    input_slot *slot = &s->inputs[i];
    if (in->dtype == 0)
        return HK_OK; // nothing reads it in this mode
    if (t == NULL)
        return hki_fail(HK_E_INVALID_ARG, "input %s: the tensor is NULL", name);
    if (hk_tensor_dtype(t) != in->dtype)
        return hki_fail(HK_E_DTYPE, "input %s: got %s, the model wants %s",
                        name, hk_dtype_name(hk_tensor_dtype(t)),
                        hk_dtype_name(in->dtype));
    char a[HKI_SHAPE_TEXT], b[HKI_SHAPE_TEXT];
    if (!hk_shape_equal(hk_tensor_shape(t), in->shape))
        return hki_fail(HK_E_SHAPE, "input %s: got %s, the plan wants %s", name,
                        hki_shape_text(hk_tensor_shape(t), a),
                        hki_shape_text(in->shape, b));
    if (!hk_tensor_is_contiguous(t))
        return hki_fail(HK_E_SHAPE, "input %s: the tensor is not contiguous",
                        name);
    hk_tensor *now = hk_tensor_retain((hk_tensor *)(uintptr_t)t);
    hk_tensor_release(slot->fed);
    slot->fed = now;
    s->plan->backend->buffer_rewrap(slot->view, hk_tensor_data(t), in->bytes);
    return follow_outputs(s, HKI_SEG_INPUT + (int32_t)i);
}

hk_status hk_session_input(hk_session *s, const char *name, hk_tensor **out) {
    size_t i = 0;
    HKI_TRY(find_input(s, name, &i));
    input_slot *slot = &s->inputs[i];
    if (slot->tensor == NULL)
        return hki_fail(HK_E_STATE, "input %s: nothing reads it in this mode",
                        name);
    hk_tensor_release(slot->fed);
    slot->fed = NULL;
    s->plan->backend->buffer_rewrap(slot->view,
                                    s->plan->backend->buffer_host(slot->own),
                                    s->plan->inputs[i].bytes);
    HKI_TRY(follow_outputs(s, HKI_SEG_INPUT + (int32_t)i));
    *out = slot->tensor;
    return HK_OK;
}

static hk_status find_scalar(const hk_session *s, const char *name,
                             size_t *out) {
    const hk_graph *g = s->plan->graph;
    for (size_t i = 0; name != NULL && i < g->scalars.n; i++)
        if (strcmp(g->scalars.data[i].name, name) == 0) {
            *out = i;
            return HK_OK;
        }
    return hki_fail(HK_E_NOT_FOUND, "no run-time scalar named %s",
                    name ? name : "(null)");
}

hk_status hk_session_set_scalar(hk_session *s, const char *name, float value) {
    size_t i = 0;
    HKI_TRY(find_scalar(s, name, &i));
    if (!isfinite(value))
        return hki_fail(HK_E_NOT_FINITE, "run-time scalar %s: %g", name,
                        (double)value);
    store_scalar(s, i, value);
    return HK_OK;
}

hk_status hk_session_get_scalar(const hk_session *s, const char *name,
                                float *value) {
    size_t i = 0;
    HKI_TRY(find_scalar(s, name, &i));
    *value = s->scalar_values[i];
    return HK_OK;
}

hk_status hk_session_output(hk_session *s, const char *name, hk_tensor **out) {
    const hk_plan *p = s->plan;
    for (size_t i = 0; name != NULL && i < p->n_outputs; i++)
        if (strcmp(p->outputs[i].name, name) == 0) {
            *out = s->outputs[i];
            return HK_OK;
        }
    return hki_fail(HK_E_NOT_FOUND, "no output named %s",
                    name ? name : "(null)");
}

float hk_session_loss(const hk_session *s) {
    return s->loss;
}

uint64_t hki_session_step(const hk_session *s) {
    return s->step;
}

void hk_session_get_info(const hk_session *s, hk_session_info *out) {
    *out = (hk_session_info){.grad_count = hki_session_grad_count(s),
                             .sparse_count = s->plan->n_sparse,
                             .step = s->step};
}

void hk_session_set_step(hk_session *s, uint64_t step) {
    s->step = step;
}

size_t hki_session_sparse_count(const hk_session *s) {
    return s->plan->n_sparse;
}

hk_status hk_session_sparse_grad(hk_session *s, size_t i, hk_sparse_grad *out) {
    const hk_plan *p = s->plan;
    if (i >= p->n_sparse || p->float_bytes != 4)
        return hki_fail(HK_E_NOT_FOUND, "no sparse gradient number %zu", i);
    const hki_plan_sparse *sp = &p->sparse[i];
    *out = (hk_sparse_grad){
        .entry = sp->entry,
        .count = *(const int64_t *)(const void *)host(s, sp->count),
        .dim = sp->entry->shape.dim[1],
        .indices = (const int64_t *)(const void *)host(s, sp->indices),
        .rows = (const float *)(const void *)host(s, sp->rows),
        .unique = 1};
    return HK_OK;
}

const void *hki_session_arg(const hk_session *s, size_t step, int arg) {
    const hki_value_place at = s->plan->steps[step].args[arg];
    return at.segment == HKI_SEG_NONE ? NULL : host(s, at);
}

// ---- running --------------------------------------------------------------

static bool all_finite(const void *data, hk_dtype t, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double x = t == HK_F64 ? ((const double *)data)[i]
                                     : (double)((const float *)data)[i];
        if (!isfinite(x))
            return false;
    }
    return true;
}

static hk_status check_finite(const hk_session *s, size_t i) {
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
    char text[512];
    snprintf(text, sizeof text, "%s", hk_last_error());
    return hki_fail(st, "%s: %s", s->plan->steps[i].call->name, text);
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

hk_status hk_session_run(hk_session *s) {
    const hk_plan *p = s->plan;
    HKI_TRY(p->backend->queue_begin(s->queue, s->opt.seed, s->step));
    const hk_status st = run_steps(s);
    const hk_status end = p->backend->queue_end(s->queue);
    if (st != HK_OK)
        return st;
    HKI_TRY(end);
    s->step++;
    if (p->has_loss) {
        const char *at = host(s, p->loss);
        s->loss = p->float_bytes == 8 ? (float)*(const double *)(const void *)at
                                      : *(const float *)(const void *)at;
    }
    return HK_OK;
}

hk_status hk_session_profile(const hk_session *s,
                             void (*write)(void *user, const char *text),
                             void *user) {
    if (s->step_ns == NULL)
        return hki_fail(HK_E_STATE, "session: made without profile");
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
