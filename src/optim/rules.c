// rules.c - the table of update rules: names, slots, ranges, coefficients.
//
// Arithmetic on the way to the coefficients follows TensorFlow's kernels:
// powers and 1 - beta are floats, so that the bias correction cancels exactly
// what the moments leave out.
#include "optim/optim.h"
#include <float.h>
#include <math.h>

// Hyper-parameters: field, range and what sets one apart.
#define HYPER(id, field, ...)                                                  \
    static const hki_hyper id = {                                              \
        #field, offsetof(hk_optimizer_options, field), __VA_ARGS__}

HYPER(rate_h, learning_rate, .high = FLT_MAX);
HYPER(positive_rate_h, learning_rate, .high = FLT_MAX, .above_low = true);
HYPER(momentum_h, momentum, .high = FLT_MAX);
HYPER(beta1_h, beta1, .high = 1, .below_high = true);
HYPER(beta2_h, beta2, .high = 1, .below_high = true);
HYPER(epsilon_h, epsilon, .high = FLT_MAX);
HYPER(rho_h, rho, .high = 1);
HYPER(accumulator_h, initial_accumulator, .high = FLT_MAX, .create_only = true);
HYPER(positive_accumulator_h, initial_accumulator, .high = FLT_MAX,
      .above_low = true, .create_only = true);
HYPER(l1_h, l1, .high = FLT_MAX);
HYPER(l2_h, l2, .high = FLT_MAX);
HYPER(shrinkage_h, l2_shrinkage, .high = FLT_MAX);
HYPER(power_h, learning_rate_power, .low = -FLT_MAX);
HYPER(decay_h, weight_decay, .high = FLT_MAX);
HYPER(eeta_h, eeta, .high = FLT_MAX);

// ---- coefficients -----------------------------------------------------------

#define PREPARE_ARGS                                                           \
    const hk_optimizer_options *o, double rate, const float power[2],          \
        int64_t global_step, bool decay, float *c
#define UNUSED_ARGS (void)o, (void)power, (void)global_step, (void)decay

static void prepare_gd(PREPARE_ARGS) {
    UNUSED_ARGS;
    c[HKI_C_RATE] = (float)rate;
}

static void prepare_momentum(PREPARE_ARGS) {
    UNUSED_ARGS;
    c[HKI_C_RATE] = (float)rate;
    c[HKI_C_MOMENTUM] = (float)o->momentum;
}

static void prepare_adagrad_da(PREPARE_ARGS) {
    UNUSED_ARGS;
    const double t = (double)global_step + 1;
    c[HKI_C_RATE] = (float)rate;
    c[HKI_C_L1] = (float)(o->l1 * t);
    c[HKI_C_L2] = (float)(o->l2 * t * rate);
}

static void prepare_adadelta(PREPARE_ARGS) {
    UNUSED_ARGS;
    c[HKI_C_RATE] = (float)rate;
    c[HKI_C_Q1] = 1.0f - (float)o->rho;
    c[HKI_C_EPSILON] = (float)o->epsilon;
}

static void prepare_adam(PREPARE_ARGS) {
    UNUSED_ARGS;
    const double left1 = 1.0f - power[0], left2 = 1.0f - power[1];
    const double root2 = sqrt(left2);
    c[HKI_C_RATE] = (float)(rate * root2 / left1);
    c[HKI_C_Q1] = 1.0f - (float)o->beta1;
    c[HKI_C_Q2] = 1.0f - (float)o->beta2;
    c[HKI_C_EPSILON] =
        (float)(o->paper_epsilon ? o->epsilon * root2 : o->epsilon);
    c[HKI_C_KEEP] = decay ? (float)(1 - rate * o->weight_decay) : 1.0f;
    // Another one at every step, and the same when a run is repeated.
    const uint64_t seed =
        hki_hash(hki_hash(HKI_HASH_INIT, &global_step, sizeof global_step),
                 power, 2 * sizeof *power);
    memcpy(&c[HKI_C_SEED], &seed, sizeof c[HKI_C_SEED]);
}

static void prepare_rmsprop(PREPARE_ARGS) {
    UNUSED_ARGS;
    c[HKI_C_RATE] = (float)rate;
    c[HKI_C_Q1] = 1.0f - (float)o->rho;
    c[HKI_C_MOMENTUM] = (float)o->momentum;
    c[HKI_C_EPSILON] = (float)o->epsilon;
}

static void prepare_ftrl(PREPARE_ARGS) {
    UNUSED_ARGS;
    c[HKI_C_RATE] = (float)rate;
    c[HKI_C_INVERSE_RATE] = (float)(1 / rate);
    c[HKI_C_L1] = (float)o->l1;
    c[HKI_C_L2] = (float)(2 * o->l2);
    c[HKI_C_SHRINK] = (float)(2 * o->l2_shrinkage);
    c[HKI_C_POWER] = (float)-o->learning_rate_power;
}

static void prepare_proximal_gd(PREPARE_ARGS) {
    UNUSED_ARGS;
    c[HKI_C_RATE] = (float)rate;
    c[HKI_C_L1] = (float)(rate * o->l1);
    c[HKI_C_L2] = (float)(1 + o->l2 * rate);
}

static void prepare_proximal_adagrad(PREPARE_ARGS) {
    UNUSED_ARGS;
    c[HKI_C_RATE] = (float)rate;
    c[HKI_C_L1] = (float)o->l1;
    c[HKI_C_L2] = (float)o->l2;
}

static void prepare_lamb(PREPARE_ARGS) {
    UNUSED_ARGS;
    c[HKI_C_RATE] = (float)rate;
    c[HKI_C_Q1] = 1.0f - (float)o->beta1;
    c[HKI_C_Q2] = 1.0f - (float)o->beta2;
    c[HKI_C_EPSILON] = (float)o->epsilon;
    c[HKI_C_DECAY] = decay ? (float)o->weight_decay : 0.0f;
    c[HKI_C_FIX1] = (float)(1 / (double)(1.0f - power[0]));
    c[HKI_C_FIX2] = (float)(1 / sqrt((double)(1.0f - power[1])));
}

static void prepare_lion(PREPARE_ARGS) {
    UNUSED_ARGS;
    c[HKI_C_RATE] = (float)rate;
    c[HKI_C_Q1] = 1.0f - (float)o->beta1;
    c[HKI_C_Q2] = 1.0f - (float)o->beta2;
    c[HKI_C_KEEP] = decay ? (float)(1 - rate * o->weight_decay) : 1.0f;
}

// ---- kernels ----------------------------------------------------------------

#define CHOOSE(name, expr)                                                     \
    static hki_rule_kernel choose_##name(const hk_optimizer_options *o) {      \
        (void)o;                                                               \
        return (expr);                                                         \
    }

CHOOSE(gd, HKI_K_GD)
CHOOSE(momentum, o->lookahead      ? HKI_K_LOOKAHEAD
                 : o->use_nesterov ? HKI_K_NESTEROV
                                   : HKI_K_MOMENTUM)
CHOOSE(adagrad, HKI_K_ADAGRAD)
CHOOSE(adagrad_da, HKI_K_ADAGRAD_DA)
CHOOSE(adadelta, HKI_K_ADADELTA)
CHOOSE(adam, o->bf16_moments ? HKI_K_ADAM_BF16 : HKI_K_ADAM)
CHOOSE(amsgrad, HKI_K_AMSGRAD)
CHOOSE(rmsprop, o->centered ? HKI_K_RMSPROP_CENTERED : HKI_K_RMSPROP)
CHOOSE(ftrl, o->learning_rate_power == -0.5 ? HKI_K_FTRL : HKI_K_FTRL_POW)
CHOOSE(proximal_gd, HKI_K_PROXIMAL_GD)
CHOOSE(proximal_adagrad, HKI_K_PROXIMAL_ADAGRAD)
CHOOSE(lamb, HKI_K_LAMB)
CHOOSE(lion, HKI_K_LION)

// ---- the table ------------------------------------------------------------

#define ACCUMULATOR offsetof(hk_optimizer_options, initial_accumulator)
#define ADAM_HYPER                                                             \
    { &rate_h, &beta1_h, &beta2_h, &epsilon_h }
#define ADAM_DEFAULTS                                                          \
    .learning_rate = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8

#define RULE(id, shown, chooses, prepares)                                     \
    .kind = (id), .name = (shown), .kernel = choose_##chooses,                 \
    .prepare = prepare_##prepares

static const hki_rule rules[] = {
    {
        RULE(HK_OPT_GRADIENT_DESCENT, "GradientDescent", gd, gd),
        .hyper = {&rate_h},
        .defaults = {.learning_rate = 0.01},
    },
    {
        RULE(HK_OPT_MOMENTUM, "Momentum", momentum, momentum),
        .slot = {{"momentum", 0, 0}},
        .hyper = {&rate_h, &momentum_h},
        .defaults = {.learning_rate = 0.01, .momentum = 0.9},
    },
    {
        RULE(HK_OPT_ADAGRAD, "Adagrad", adagrad, gd),
        .slot = {{"accumulator", ACCUMULATOR, 0}},
        .hyper = {&rate_h, &positive_accumulator_h},
        .defaults = {.learning_rate = 0.01, .initial_accumulator = 0.1},
    },
    {
        RULE(HK_OPT_ADAGRAD_DA, "AdagradDA", adagrad_da, adagrad_da),
        .slot = {{"gradient_accumulator", 0, 0},
                 {"gradient_squared_accumulator", ACCUMULATOR, 0}},
        .hyper = {&rate_h, &positive_accumulator_h, &l1_h, &l2_h},
        .defaults = {.learning_rate = 0.01, .initial_accumulator = 0.1},
    },
    {
        RULE(HK_OPT_ADADELTA, "Adadelta", adadelta, adadelta),
        .slot = {{"accum", 0, 0}, {"accum_update", 0, 0}},
        .hyper = {&rate_h, &rho_h, &epsilon_h},
        .defaults = {.learning_rate = 0.001, .rho = 0.95, .epsilon = 1e-8},
    },
    {
        RULE(HK_OPT_ADAM, "Adam", adam, adam),
        .flags = HKI_RULE_POWERS | HKI_RULE_ALL_ROWS,
        .slot = {{"m", 0, 0}, {"v", 0, 0}},
        .hyper = ADAM_HYPER,
        .defaults = {ADAM_DEFAULTS},
    },
    {
        RULE(HK_OPT_ADAMW, "AdamW", adam, adam),
        .flags = HKI_RULE_POWERS | HKI_RULE_ALL_ROWS,
        .slot = {{"m", 0, 0}, {"v", 0, 0}},
        .hyper = {&rate_h, &beta1_h, &beta2_h, &epsilon_h, &decay_h},
        .defaults = {ADAM_DEFAULTS, .weight_decay = 0.01},
    },
    {
        RULE(HK_OPT_AMSGRAD, "AMSGrad", amsgrad, adam),
        .flags = HKI_RULE_POWERS | HKI_RULE_ALL_ROWS,
        .slot = {{"m", 0, 0}, {"v", 0, 0}, {"vhat", 0, 0}},
        .hyper = ADAM_HYPER,
        .defaults = {ADAM_DEFAULTS},
    },
    {
        RULE(HK_OPT_LAZY_ADAM, "Adam", adam, adam),
        .flags = HKI_RULE_POWERS,
        .slot = {{"m", 0, 0}, {"v", 0, 0}},
        .hyper = ADAM_HYPER,
        .defaults = {ADAM_DEFAULTS},
    },
    {
        // The slot "mg" exists when centered only: hki_rule_slots.
        RULE(HK_OPT_RMSPROP, "RMSProp", rmsprop, rmsprop),
        .slot = {{"rms", 0, 1}, {"mg", 0, 0}, {"momentum", 0, 0}},
        .hyper = {&rate_h, &rho_h, &momentum_h, &epsilon_h},
        .defaults = {.learning_rate = 0.001, .rho = 0.9, .epsilon = 1e-10},
    },
    {
        RULE(HK_OPT_FTRL, "Ftrl", ftrl, ftrl),
        .slot = {{"accum", ACCUMULATOR, 0}, {"linear", 0, 0}},
        .hyper = {&positive_rate_h, &power_h, &accumulator_h, &l1_h, &l2_h,
                  &shrinkage_h},
        .defaults = {.learning_rate = 0.01,
                     .learning_rate_power = -0.5,
                     .initial_accumulator = 0.1},
    },
    {
        RULE(HK_OPT_PROXIMAL_GRADIENT_DESCENT, "ProximalGradientDescent",
             proximal_gd, proximal_gd),
        .hyper = {&rate_h, &l1_h, &l2_h},
        .defaults = {.learning_rate = 0.01},
    },
    {
        RULE(HK_OPT_PROXIMAL_ADAGRAD, "ProximalAdagrad", proximal_adagrad,
             proximal_adagrad),
        .slot = {{"accumulator", ACCUMULATOR, 0}},
        .hyper = {&positive_rate_h, &positive_accumulator_h, &l1_h, &l2_h},
        .defaults = {.learning_rate = 0.01, .initial_accumulator = 0.1},
    },
    {
        RULE(HK_OPT_LARS, "LARSOptimizer", momentum, momentum),
        .flags = HKI_RULE_PER_ENTRY,
        .slot = {{"momentum", 0, 0}},
        .hyper = {&rate_h, &momentum_h, &decay_h, &eeta_h, &epsilon_h},
        .defaults = {.learning_rate = 0.01,
                     .momentum = 0.9,
                     .weight_decay = 0.0001,
                     .eeta = 0.001},
    },
    {
        RULE(HK_OPT_LAMB, "LAMB", lamb, lamb),
        .flags = HKI_RULE_POWERS | HKI_RULE_PER_ENTRY,
        .slot = {{"m", 0, 0}, {"v", 0, 0}},
        .hyper = {&rate_h, &beta1_h, &beta2_h, &epsilon_h, &decay_h},
        .defaults = {.learning_rate = 0.001,
                     .beta1 = 0.9,
                     .beta2 = 0.999,
                     .epsilon = 1e-6,
                     .weight_decay = 0.01},
    },
    {
        RULE(HK_OPT_LION, "Lion", lion, lion),
        .slot = {{"m", 0, 0}},
        .hyper = {&rate_h, &beta1_h, &beta2_h, &decay_h},
        .defaults = {.learning_rate = 0.0001, .beta1 = 0.9, .beta2 = 0.99},
    },
};

const hki_rule *hki_rule_find(hk_optimizer_kind kind) {
    for (size_t i = 0; i < HKI_COUNT(rules); i++)
        if (rules[i].kind == kind)
            return &rules[i];
    return NULL;
}

size_t hki_rule_slots(const hki_rule *r, const hk_optimizer_options *o,
                      hki_slot_def out[HKI_MAX_SLOTS]) {
    size_t n = 0;
    for (size_t i = 0; i < HKI_MAX_SLOTS && r->slot[i].name != NULL; i++)
        if (r->kind != HK_OPT_RMSPROP || o->centered || i != 1)
            out[n++] = r->slot[i];
    return n;
}

const hki_hyper *hki_rule_hyper(const hki_rule *r, const char *name) {
    for (size_t i = 0; i < HKI_COUNT(r->hyper) && r->hyper[i] != NULL; i++)
        if (strcmp(r->hyper[i]->name, name) == 0)
            return r->hyper[i];
    return NULL;
}

double hki_hyper_get(const hk_optimizer_options *o, const hki_hyper *h) {
    double v;
    memcpy(&v, (const char *)o + h->offset, sizeof v);
    return v;
}

void hki_hyper_put(hk_optimizer_options *o, const hki_hyper *h, double v) {
    memcpy((char *)o + h->offset, &v, sizeof v);
}

hk_status hki_hyper_check(const hki_rule *r, const hki_hyper *h, double v) {
    if (!isfinite(v))
        return hki_fail(HK_E_NOT_FINITE, "%s: %s is %g", r->name, h->name, v);
    // Open ends are tested on the float that the kernels will see.
    const bool below = h->above_low ? (float)v <= h->low : v < h->low;
    const bool above = h->below_high ? (float)v >= h->high : v > h->high;
    if (below || above)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: %s is %g; it has to be in %c%g, %g%c", r->name,
                        h->name, v, h->above_low ? '(' : '[', h->low, h->high,
                        h->below_high ? ')' : ']');
    return HK_OK;
}

static hk_status check_flag(const hki_rule *r, const char *name, uint32_t v) {
    if (v > 1)
        return hki_fail(HK_E_INVALID_ARG, "%s: %s is %u; it has to be 0 or 1",
                        r->name, name, v);
    return HK_OK;
}

static hk_status check_lookahead(const hki_rule *r,
                                 const hk_optimizer_options *o) {
    HKI_TRY(check_flag(r, "lookahead", o->lookahead));
    if (o->lookahead && (r->kind != HK_OPT_MOMENTUM || o->use_nesterov))
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: lookahead is only for momentum without use_nesterov", r->name);
    return HK_OK;
}

hk_status hki_rule_check(const hki_rule *r, const hk_optimizer_options *o) {
    for (size_t i = 0; i < HKI_COUNT(r->hyper) && r->hyper[i] != NULL; i++) {
        const hki_hyper *const h = r->hyper[i];
        // A schedule replaces the rate, which is then checked at each step.
        if (i > 0 || o->schedule == NULL)
            HKI_TRY(hki_hyper_check(r, h, hki_hyper_get(o, h)));
    }
    HKI_TRY(check_flag(r, "use_nesterov", o->use_nesterov));
    HKI_TRY(check_flag(r, "centered", o->centered));
    HKI_TRY(check_flag(r, "paper_epsilon", o->paper_epsilon));
    if ((int)o->sparse_update < HK_SPARSE_BY_KIND ||
        (int)o->sparse_update > HK_SPARSE_ALL_ROWS)
        return hki_fail(HK_E_INVALID_ARG, "%s: unknown sparse_update %d",
                        r->name, (int)o->sparse_update);
    if ((r->flags & HKI_RULE_PER_ENTRY) &&
        o->sparse_update == HK_SPARSE_ALL_ROWS)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: sparse_update cannot be all rows; this rule "
                        "updates only rows with a gradient",
                        r->name);
    HKI_TRY(check_flag(r, "bf16_moments", o->bf16_moments));
    if (o->bf16_moments && r->kernel(o) != HKI_K_ADAM_BF16)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: bf16_moments are only for Adam, AdamW and lazy Adam", r->name);
    return check_lookahead(r, o);
}

void hk_optimizer_options_init(hk_optimizer_options *opt, size_t struct_size,
                               hk_optimizer_kind kind) {
    const hki_rule *const r = hki_rule_find(kind);
    hk_optimizer_options d = {0};
    if (r != NULL)
        d = r->defaults;
    d.kind = kind;
    hki_options_init(opt, struct_size, &d, sizeof d);
}
