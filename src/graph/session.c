// session.c - one set of values that runs a plan.
//
// Invariant: everything a run touches is allocated when the session is made.
// A run resolves nothing and allocates nothing: kernels hold (buffer, offset)
// pairs. In host memory what can change place (parameters bound elsewhere, a
// fed tensor) is a view, a buffer whose address is moved under them
// (buffer_rewrap). On a device whose memory is apart it is staged: inputs go up
// before a run, and what somebody asks for comes down after it.
#include <math.h>
#include "graph/session_state.h"

HKI_OPTIONS(hk_session_options, profile)

// ---- memory ---------------------------------------------------------------

static hk_status make_view(const hk_session *s, hki_buffer *own, size_t bytes,
                           hki_buffer **out) {
    const hki_backend *be = s->plan->backend;
    return be->buffer_wrap(s->plan->device, be->buffer_host(own), bytes, out);
}

// A vector of the session: in host memory it is a buffer, elsewhere it has one.
static hk_status make_vector(hk_session *s, int64_t count, hki_vector *v) {
    const hki_backend *be = s->plan->backend;
    const int64_t n = count * (int64_t)(s->plan->float_bytes / sizeof(float));
    if (s->apart) {
        HKI_TRY(hki_vector_init(v, n, 0));
        return hki_vector_follow(v, &s->place);
    }
    *v = (hki_vector){.n = n, .borrowed = true};
    HKI_TRY(be->buffer_create(s->plan->device, (size_t)n * sizeof(float),
                              &v->buffer));
    v->host = be->buffer_host(v->buffer);
    return HK_OK;
}

static void destroy_vector(const hk_session *s, hki_vector *v) {
    if (!s->apart && v->buffer != NULL)
        s->plan->backend->buffer_destroy(v->buffer);
    hki_vector_deinit(v);
}

static hk_status make_vectors(hk_session *s) {
    const hk_plan *p = s->plan;
    const hki_backend *be = p->backend;
    HKI_TRY(make_vector(s, hki_layout_size(p->layout), &s->params));
    s->x = &s->params;
    if (!s->apart)
        HKI_TRY(make_view(s, s->params.buffer,
                          (size_t)s->params.n * sizeof(float), &s->view));
    HKI_TRY(make_vector(s, hki_session_grad_count(s), &s->grads));
    HKI_TRY(be->buffer_create(p->device, p->scratch_bytes, &s->scratch));
    const size_t n = p->graph->scalars.n;
    if (s->apart)
        HKI_TRY(hki_zalloc_array(n, HKI_SCALAR_BYTES, &s->scalar_stage));
    return be->buffer_create(p->device, n * HKI_SCALAR_BYTES, &s->scalars);
}

static hk_status make_input(hk_session *s, const hki_plan_input *in,
                            hki_input_slot *slot) {
    const hki_backend *be = s->plan->backend;
    HKI_TRY(be->buffer_create(s->plan->device, in->bytes, &slot->own));
    if (s->apart)
        HKI_TRY(be->host_alloc != NULL
                    ? be->host_alloc(s->plan->device, in->bytes, &slot->stage)
                    : hki_zalloc_array(in->bytes, 1, &slot->stage));
    else
        HKI_TRY(make_view(s, slot->own, in->bytes, &slot->view));
    return hk_tensor_wrap(in->dtype, in->shape,
                          s->apart ? slot->stage : be->buffer_host(slot->own),
                          &slot->tensor);
}

static hk_status make_inputs(hk_session *s) {
    const hk_plan *p = s->plan;
    HKI_TRY(hki_zalloc_array(p->n_inputs, sizeof *s->inputs, &s->inputs));
    HKI_TRY(hki_zalloc_array(p->n_inputs + 1, sizeof *s->writes, &s->writes));
    for (size_t i = 0; i < p->n_inputs; i++)
        if (p->inputs[i].dtype != 0)
            HKI_TRY(make_input(s, &p->inputs[i], &s->inputs[i]));
    return HK_OK;
}

// The plan knows places as (segment, offset); a session gives each segment its
// buffer. Inputs have one segment each.
hki_loc hki_session_loc(const hk_session *s, hki_value_place at) {
    switch (at.segment) {
    case HKI_SEG_NONE:
        return (hki_loc){0};
    case HKI_SEG_SCRATCH:
        return (hki_loc){s->scratch, at.offset};
    case HKI_SEG_PARAMS:
        return (hki_loc){s->apart ? s->x->buffer : s->view, at.offset};
    case HKI_SEG_GRADS:
        return (hki_loc){s->grads.buffer, at.offset};
    case HKI_SEG_CONSTANTS:
        return (hki_loc){s->plan->constants, at.offset};
    case HKI_SEG_SCALARS:
        return (hki_loc){s->scalars, at.offset};
    default: {
        const hki_input_slot *slot = &s->inputs[at.segment - HKI_SEG_INPUT];
        return (hki_loc){s->apart ? slot->own : slot->view, at.offset};
    }
    }
}

// In host memory: the address of a place.
static void *host(const hk_session *s, hki_value_place at) {
    const hki_loc l = hki_session_loc(s, at);
    return (char *)s->plan->backend->buffer_host(l.buffer) + l.offset;
}

hk_status hki_session_look(const hk_session *s, hki_value_place at, size_t n,
                           void *stage, const void **out) {
    if (s->apart)
        HKI_TRY(
            s->plan->backend->read(s->queue, stage, hki_session_loc(s, at), n));
    *out = s->apart ? stage : host(s, at);
    return HK_OK;
}

// Every call with its places, resolved once: a run only goes through them.
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
            args[k] = hki_session_loc(s, st->args[k]);
        call->kernel = st->kernel;
        call->args = args;
        call->scratch = hki_session_loc(s, st->scratch);
    }
    return HK_OK;
}

// Outputs are tensors over the values themselves, or over a stage to which they
// are copied when somebody asks.
static hk_status make_outputs(hk_session *s) {
    const hk_plan *p = s->plan;
    HKI_TRY(hki_zalloc_array(p->n_outputs, sizeof *s->outputs, &s->outputs));
    if (s->apart)
        HKI_TRY(hki_zalloc_array(p->n_outputs, sizeof *s->output_stages,
                                 &s->output_stages));
    for (size_t i = 0; i < p->n_outputs; i++) {
        const hki_plan_output *o = &p->outputs[i];
        size_t bytes;
        HKI_TRY(hki_shape_bytes(o->shape, hk_dtype_size(o->dtype), &bytes));
        if (s->apart)
            HKI_TRY(hki_zalloc_array(bytes, 1, &s->output_stages[i]));
        HKI_TRY(
            hk_tensor_wrap(o->dtype, o->shape,
                           s->apart ? s->output_stages[i] : host(s, o->place),
                           &s->outputs[i]));
    }
    return HK_OK;
}

// Where memory is apart: room for as many rows as a batch can touch.
static hk_status make_sparse(hk_session *s) {
    const hk_plan *p = s->plan;
    if (!s->apart)
        return HK_OK;
    HKI_TRY(hki_zalloc_array(p->n_sparse, sizeof *s->sparse, &s->sparse));
    HKI_TRY(hki_zalloc_array(2 * p->n_sparse, sizeof *s->sparse_reads,
                             &s->sparse_reads));
    for (size_t i = 0; i < p->n_sparse; i++) {
        const size_t n = (size_t)p->sparse[i].capacity;
        const size_t dim = (size_t)p->sparse[i].entry->shape.dim[1];
        HKI_TRY(hki_alloc_array(n, sizeof(int64_t), &s->sparse[i].indices));
        HKI_TRY(hki_alloc_array(n * dim, sizeof(float), &s->sparse[i].rows));
    }
    return HK_OK;
}

// ---- values ---------------------------------------------------------------

static void store_scalar(hk_session *s, size_t i, float value) {
    void *const base =
        s->apart ? s->scalar_stage : s->plan->backend->buffer_host(s->scalars);
    void *const at = (char *)base + i * HKI_SCALAR_BYTES;
    s->scalar_values[i] = value;
    s->scalars_old = true;
    if (s->plan->float_bytes == 8)
        *(double *)at = (double)value;
    else
        *(float *)at = value;
}

static hk_status init_values(hk_session *s) {
    const hk_plan *p = s->plan;
    const size_t n = (size_t)hki_layout_size(p->layout);
    float *own;
    HKI_TRY(hki_vector_host(&s->params, HKI_TO_WRITE, &own));
    HKI_TRY(hki_zalloc_array(p->graph->scalars.n, sizeof *s->scalar_values,
                             &s->scalar_values));
    for (size_t i = 0; i < p->graph->scalars.n; i++)
        store_scalar(s, i, p->graph->scalars.data[i].dflt);
    if (p->float_bytes == 4)
        return hk_plan_init_values(p, s->opt.seed, own);
    HKI_FREED float *x = NULL;
    HKI_TRY(hki_alloc_array(n, sizeof *x, &x));
    HKI_TRY(hk_plan_init_values(p, s->opt.seed, x));
    for (size_t i = 0; i < n; i++)
        ((double *)(void *)own)[i] = (double)x[i];
    return HK_OK;
}

// ---- create and destroy ---------------------------------------------------

static hk_status build(hk_session *s) {
    const hki_backend *be = s->plan->backend;
    HKI_TRY(be->queue_create(s->plan->device, &s->queue));
    s->apart = be->buffer_wrap == NULL;
    s->place = (hki_place){.ops = be->vectors,
                           .backend = be,
                           .device = s->plan->device,
                           .queue = s->queue};
    HKI_TRY(make_vectors(s));
    HKI_TRY(make_inputs(s));
    HKI_TRY(init_values(s));
    HKI_TRY(make_steps(s));
    HKI_TRY(make_sparse(s));
    return make_outputs(s);
}

hk_status hk_session_create(hk_plan *p, const hk_session_options *opt,
                            hk_session **out) {
    if (p == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "session: plan or out is NULL");
    hk_session_options o;
    HKI_TRY(HKI_OPTIONS_GET(hk_session_options, &o, opt, "session options"));
    HKI_SCOPED(hk_session_destroy_at) hk_session *s = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->plan = hk_plan_retain(p);
    s->opt = o;
    HKI_TRY(build(s));
    if (o.pin)
        HKI_TRY(p->backend->queue_pin(s->queue, o.first_cpu));
    return HKI_HAND_ON(out, s);
}

// A recorded run holds addresses; where one changes it is recorded again.
static void forget_capture(hk_session *s) {
    if (s->captured != NULL)
        s->plan->backend->plan_release(s->captured);
    s->captured = NULL;
}

static void destroy_input(const hk_session *s, hki_input_slot *slot) {
    const hki_backend *const be = s->plan->backend;
    hk_tensor_release(slot->tensor);
    hk_tensor_release(slot->fed);
    if (slot->view != NULL)
        be->buffer_destroy(slot->view);
    if (slot->own != NULL)
        be->buffer_destroy(slot->own);
    if (be->host_free != NULL)
        be->host_free(s->plan->device, slot->stage);
    else
        hki_free(slot->stage);
}

void hk_session_destroy(hk_session *s) {
    if (s == NULL)
        return;
    const hki_backend *be = s->plan->backend;
    forget_capture(s);
    for (size_t i = 0; i < s->n_states; i++)
        be->state_destroy(s->calls[i].state);
    for (size_t i = 0; s->outputs != NULL && i < s->plan->n_outputs; i++)
        hk_tensor_release(s->outputs[i]);
    for (size_t i = 0; s->inputs != NULL && i < s->plan->n_inputs; i++)
        destroy_input(s, &s->inputs[i]);
    for (size_t i = 0; s->output_stages != NULL && i < s->plan->n_outputs; i++)
        hki_free(s->output_stages[i]);
    for (size_t i = 0; s->sparse != NULL && i < s->plan->n_sparse; i++) {
        hki_free(s->sparse[i].indices);
        hki_free(s->sparse[i].rows);
    }
    destroy_vector(s, &s->params);
    destroy_vector(s, &s->grads);
    hki_vector_deinit(&s->bound);
    hki_buffer *const buffers[] = {s->view, s->scratch, s->scalars};
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
    hki_free(s->writes);
    hki_free(s->outputs);
    hki_free(s->output_stages);
    hki_free(s->sparse);
    hki_free(s->sparse_reads);
    hki_buf_deinit(&s->look);
    hki_free(s->scalar_values);
    hki_free(s->scalar_stage);
    hk_plan_release(s->plan);
    hki_free(s);
}

// ---- access ---------------------------------------------------------------

hk_plan *hk_session_plan(const hk_session *s) {
    return s->plan;
}

hki_vector *hki_session_x(hk_session *s) {
    return &s->params;
}

hki_vector *hki_session_gradient(hk_session *s) {
    return &s->grads;
}

// NULL where a device was lost.
void *hki_session_values(hk_session *s) {
    float *x;
    return hki_vector_host(&s->params, HKI_TO_CHANGE, &x) == HK_OK ? x : NULL;
}

float *hk_session_params(hk_session *s) {
    return s->plan->float_bytes == 4 ? hki_session_values(s) : NULL;
}

float *hk_session_grads(hk_session *s) {
    float *g;
    return s->plan->float_bytes == 4 &&
                   hki_vector_host(&s->grads, HKI_TO_CHANGE, &g) == HK_OK
               ? g
               : NULL;
}

int64_t hki_session_grad_count(const hk_session *s) {
    return s->plan->mode == HK_TRAIN ? s->plan->n_grad : 0;
}

// Outputs that are variables or inputs themselves follow their memory.
static hk_status follow_outputs(hk_session *s, int32_t segment) {
    const hk_plan *p = s->plan;
    for (size_t i = 0; !s->apart && i < p->n_outputs; i++) {
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

// Elsewhere: kernels look again where vectors are.
static void find_vectors(hk_session *s) {
    const hk_plan *p = s->plan;
    for (size_t i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_args; k++) {
            const hki_value_place at = p->steps[i].args[k];
            if (at.segment == HKI_SEG_PARAMS || at.segment == HKI_SEG_GRADS)
                s->args[i * HKI_MAX_ARGS + (size_t)k] = hki_session_loc(s, at);
        }
    forget_capture(s);
}

// Runs use x from now on.
static hk_status use_vector(hk_session *s, hki_vector *x) {
    s->x = x;
    if (s->apart)
        find_vectors(s);
    else
        s->plan->backend->buffer_rewrap(s->view, x->host,
                                        (size_t)x->n * sizeof(float));
    return follow_outputs(s, HKI_SEG_PARAMS);
}

static hk_status check_binding(const hk_session *s) {
    if (s->plan->float_bytes != 4)
        return hki_fail(HK_E_DTYPE, "session: only float32 plans can be bound "
                                    "to another vector");
    return HK_OK;
}

hk_status hk_session_bind_params(hk_session *s, float *x) {
    HKI_TRY(check_binding(s));
    if (x == NULL)
        return use_vector(s, &s->params);
    if (s->bound.n == 0) {
        hki_vector v = HKI_HOST_VECTOR(x, s->params.n);
        if (s->apart)
            HKI_TRY(hki_vector_follow(&v, &s->place));
        s->bound = v;
    }
    s->bound.host = x;
    return use_vector(s, &s->bound);
}

hk_status hki_session_share(hk_session *s, hk_session *from) {
    if (s->x == &from->params)
        return HK_OK;
    HKI_TRY(check_binding(s));
    HKI_TRY(hki_vector_follow(&s->grads, from->params.at));
    return use_vector(s, &from->params);
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
    return hki_fail(HK_E_NOT_FOUND,
                    "there is no input named %s; the model has %s",
                    name ? name : "(null)", known);
}

hk_status hk_session_feed(hk_session *s, const char *name, const hk_tensor *t) {
    size_t i = 0;
    HKI_TRY(find_input(s, name, &i));
    const hki_plan_input *in = &s->plan->inputs[i];
    hki_input_slot *slot = &s->inputs[i];
    if (in->dtype == 0)
        return HK_OK; // nothing reads it in this mode
    if (t == NULL)
        return hki_fail(HK_E_INVALID_ARG, "input %s: the tensor is NULL", name);
    if (hk_tensor_dtype(t) != in->dtype)
        return hki_fail(
            HK_E_DTYPE, "input %s: the tensor is %s, but the model needs %s",
            name, hk_dtype_name(hk_tensor_dtype(t)), hk_dtype_name(in->dtype));
    char a[HKI_SHAPE_TEXT], b[HKI_SHAPE_TEXT];
    if (!hk_shape_equal(hk_tensor_shape(t), in->shape))
        return hki_fail(HK_E_SHAPE,
                        "input %s: the tensor is %s, but the plan needs %s",
                        name, hki_shape_text(hk_tensor_shape(t), a),
                        hki_shape_text(in->shape, b));
    if (!hk_tensor_is_contiguous(t))
        return hki_fail(HK_E_SHAPE, "input %s: the tensor is not contiguous",
                        name);
    hk_tensor *now = hk_tensor_retain((hk_tensor *)(uintptr_t)t);
    hk_tensor_release(slot->fed);
    slot->fed = now;
    if (!s->apart)
        s->plan->backend->buffer_rewrap(slot->view, hk_tensor_data(t),
                                        in->bytes);
    return follow_outputs(s, HKI_SEG_INPUT + (int32_t)i);
}

hk_status hk_session_input(hk_session *s, const char *name, hk_tensor **out) {
    size_t i = 0;
    HKI_TRY(find_input(s, name, &i));
    hki_input_slot *slot = &s->inputs[i];
    if (slot->tensor == NULL)
        return hki_fail(HK_E_STATE,
                        "input %s: the model does not use it in this mode",
                        name);
    hk_tensor_release(slot->fed);
    slot->fed = NULL;
    if (!s->apart)
        s->plan->backend->buffer_rewrap(
            slot->view, s->plan->backend->buffer_host(slot->own),
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
    return hki_fail(HK_E_NOT_FOUND, "there is no run-time scalar named %s",
                    name ? name : "(null)");
}

hk_status hk_session_set_scalar(hk_session *s, const char *name, float value) {
    size_t i = 0;
    HKI_TRY(find_scalar(s, name, &i));
    if (!isfinite(value))
        return hki_fail(HK_E_NOT_FINITE,
                        "run-time scalar %s: the value %g is not finite", name,
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
            const void *at;
            HKI_TRY(hki_session_look(
                s, p->outputs[i].place, hki_tensor_bytes(s->outputs[i]),
                s->apart ? s->output_stages[i] : NULL, &at));
            *out = s->outputs[i];
            return HK_OK;
        }
    return hki_fail(HK_E_NOT_FOUND, "there is no output named %s",
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

static size_t arg_bytes(const hki_call *c, int arg) {
    const hk_node *x = arg < c->n_in ? c->in[arg] : &c->out[arg - c->n_in];
    size_t n = 0;
    return hki_shape_bytes(x->shape, hk_dtype_size(x->dtype), &n) == HK_OK ? n
                                                                           : 0;
}

const void *hki_session_arg(hk_session *s, size_t step, int arg) {
    const hki_value_place at = s->plan->steps[step].args[arg];
    const size_t n = arg_bytes(s->plan->steps[step].call, arg);
    const void *data = NULL;
    if (at.segment == HKI_SEG_NONE)
        return NULL;
    if (s->apart && hki_buf_reserve(&s->look, n) != HK_OK)
        return NULL;
    return hki_session_look(s, at, n, s->look.data, &data) == HK_OK ? data
                                                                    : NULL;
}
