// cluster.c - one program for every role of a cluster, however it is started.
//
//     cluster [center|worker|evaluator] [--index I] [--center ADDR,...]
//             [--listen ADDR] [--center-file PATH] [--key FILE] [--insecure]
//             [--steps N] [--seconds N] [--tau N] [--workers N] [--int8]
//             [--mnist DIR] [--metrics ADDR] [--expect PERCENT] [--verbose]
//
// Started by hand, by srun, mpirun, torchrun or with a TF_CONFIG, each process
// finds out what it is. Started alone it is everything: a center, --workers
// workers as threads, and an evaluator. The model learns handwritten-like
// digits, or MNIST. Exit codes: 0 done, 1 failed, 2 usage, 128 and above: try
// again (a center was lost; 143: stopped by SIGTERM).
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster_digits.h"
#include "hooke/hooke.h"

typedef struct app {
    hk_context *ctx;
    hk_cluster_config *config;
    hk_cluster_info who;
    hk_key key;
    int has_key, insecure, int8, verbose; // flags
    long steps, tau, workers, seconds;
    long expected; // workers of a center; 0: it was not told
    double expect;
    const char *address; // of a center in this process; NULL: the config's
    const char *center_file, *metrics;
    digits data;
    double accuracy; // of the last evaluation
} app;

static hk_context *the_context; // for the signal handler

static void on_signal(int number) {
    hk_request_stop(the_context, number);
}

static void say(void *user, hk_log_level level, const char *text) {
    (void)user;
    (void)level;
    fprintf(stderr, "cluster: %s\n", text);
}

static int failed(const char *what, hk_status s) {
    const int stop = hk_stop_requested(the_context);
    if (s == HK_E_CANCELLED && stop != 0) {
        fprintf(stderr, "cluster: %s: stopped by signal %d\n", what, stop);
        return 128 + stop;
    }
    fprintf(stderr, "cluster: %s: %s\n", what, hk_last_error());
    return s == HK_E_UNAVAILABLE || s == HK_E_TIMEOUT ? 137 : 1;
}

static void check(hk_status s) {
    if (s != HK_OK)
        exit(failed("start", s));
}

static hk_plan *get_plan(app *a, hk_mode mode) {
    hk_plan *p;
    check(digits_plan(a->ctx, mode, &p));
    return p;
}

// ---- a center --------------------------------------------------------------

static hk_status start_center(app *a, hk_role_center **out) {
    hk_center_server_options so;
    hk_role_center_options o;
    hk_center_options center;
    hk_run_limits limits;
    hk_center_options_init(&center, sizeof center);
    center.workers = (uint32_t)a->expected;
    hk_center_server_options_init(&so, sizeof so);
    so.center = &center;
    so.context = a->ctx;
    so.key = a->has_key ? &a->key : NULL;
    so.insecure = (uint32_t)a->insecure;
    so.path = a->center_file;
    hk_run_limits_init(&limits, sizeof limits);
    limits.steps = a->steps;
    limits.seconds = (double)a->seconds;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    o.limits = &limits;
    o.metrics = a->metrics;
    if (a->address == NULL) {
        o.config = a->config;
    } else {
        so.addresses = &a->address;
        so.n_addresses = 1;
    }
    return hk_role_center_start(&o, out);
}

static int run_center(app *a) {
    hk_role_center *c;
    hk_role_result r;
    hk_server_info info = {0};
    hk_role_center_info center;
    hk_status s = start_center(a, &c);
    if (s == HK_OK) {
        s = hk_role_center_wait(c, -1, &r);
        hk_role_center_get_info(c, &center);
        (void)hk_center_server_get_info(center.server, &info);
        hk_role_center_stop(c);
    }
    if (s != HK_OK)
        return failed("center", s);
    printf("center: %s; %lld steps, %llu exchanges, %llu bytes in, %llu out\n",
           r.reason, (long long)r.global_step,
           (unsigned long long)info.center.exchanges,
           (unsigned long long)info.bytes_in,
           (unsigned long long)info.bytes_out);
    return 0;
}

// ---- a worker --------------------------------------------------------------

static void connect_options(app *a, hk_connect_options *co) {
    hk_connect_options_init(co, sizeof *co);
    co->context = a->ctx;
    co->key = a->has_key ? &a->key : NULL;
    co->insecure = (uint32_t)a->insecure;
    if (a->int8) {
        co->compression = HK_COMPRESS_INT8;
        co->center_bf16 = 1;
    }
    if (a->address != NULL) {
        co->addresses = &a->address;
        co->n_addresses = 1;
    }
}

// Steps until the run ends.
static hk_status train(app *a, hk_role_worker *w, hk_session *session,
                       hk_elastic *e, hk_optimizer *opt, int32_t id,
                       hk_run_end *end) {
    hk_trainer_options to;
    hk_trainer_options_init(&to, sizeof to);
    to.session = session;
    to.optimizer = opt;
    to.elastic = e;
    hk_trainer *t;
    hk_status s = hk_elastic_init(e, hk_session_params(session), id);
    if (s == HK_OK)
        s = hk_trainer_create(&to, &t);
    if (s != HK_OK)
        return s;
    uint64_t random = 88172645463325252u + 7919u * (uint64_t)(id + 1);
    hk_progress p = {0};
    while (s == HK_OK && *end == HK_END_NONE) {
        s = digits_feed(&a->data, session, &random);
        if (s == HK_OK)
            s = hk_trainer_step(t, NULL);
        p.examples += BATCH;
        hk_step_info info;
        if (s == HK_OK)
            s = hk_trainer_get_info(t, &info);
        if (s == HK_OK)
            p.loss = (double)info.loss;
        hk_progress_of(e, &p);
        if (s == HK_OK)
            s = hk_role_worker_step(w, &p, end);
        if (a->verbose && p.local_step % 100 == 0)
            fprintf(stderr, "worker %d: step %lld, loss %.3f\n", id,
                    (long long)p.local_step, p.loss);
    }
    hk_trainer_destroy(t);
    return s;
}

static hk_status work(app *a, int32_t id, uint32_t n_workers) {
    hk_role_worker_options o;
    hk_connect_options co;
    hk_role_worker *w = NULL;
    hk_session *session = NULL;
    hk_optimizer *opt = NULL;
    hk_elastic *e = NULL;
    hk_run_end end = HK_END_NONE;
    connect_options(a, &co);
    hk_role_worker_options_init(&o, sizeof o);
    o.config = a->address == NULL ? a->config : NULL;
    o.connect = &co;
    // In one process the center has the endpoint.
    o.metrics = a->address == NULL ? a->metrics : NULL;
    hk_plan *plan = get_plan(a, HK_TRAIN);
    hk_status s = hk_role_worker_open(&o, hk_plan_layout(plan), &w);
    if (s == HK_OK)
        s = hk_session_create(plan, NULL, &session);
    if (s == HK_OK)
        s = hk_plan_init_values(plan, 1, hk_session_params(session));
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_MOMENTUM);
    oo.learning_rate = 0.05;
    oo.momentum = 0.9;
    oo.threads = 1; // one core a worker, as the plan
    if (s == HK_OK)
        s = hk_optimizer_create(&oo, hk_plan_layout(plan), &opt);
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.context = a->ctx;
    eo.preset = HK_PRESET_PAPER; // moving rate 0.9 / workers, rho 0
    eo.num_worker = n_workers;
    eo.communication_period = (uint32_t)a->tau;
    eo.telemetry = 1;
    if (s == HK_OK)
        s = hk_elastic_create(&eo, opt, hk_role_worker_center(w), &e);
    if (s == HK_OK)
        s = train(a, w, session, e, opt, id, &end);
    hk_link_info link = {0};
    if (s == HK_OK)
        (void)hk_center_get_link_info(hk_role_worker_center(w), &link);
    hk_role_result r = {0};
    hk_elastic_info own = {0};
    if (e != NULL)
        (void)hk_elastic_get_info(e, &own);
    if (s == HK_OK)
        s = hk_role_worker_leave(w, end, e, hk_session_params(session), &r);
    if (s == HK_OK)
        printf("worker %d: %s; %lld own steps, %llu bytes sent, %llu "
               "received, %llu reconnects\n",
               id, r.reason, (long long)own.local_step,
               (unsigned long long)link.bytes_out,
               (unsigned long long)link.bytes_in,
               (unsigned long long)link.reconnects);
    hk_elastic_destroy(e);
    hk_role_worker_close(w);
    hk_optimizer_destroy(opt);
    hk_session_destroy(session);
    hk_plan_release(plan);
    // Stopped in good order is still stopped.
    return s == HK_OK && end == HK_END_STOPPED ? HK_E_CANCELLED : s;
}

static int run_worker(app *a) {
    hk_role_center *c = NULL;
    hk_role_result r;
    hk_status s = HK_OK;
    // Under Slurm and torchrun the centers are threads of the first ranks.
    if (a->who.center_index >= 0)
        s = start_center(a, &c);
    const uint32_t n =
        a->who.n_workers > 0 ? a->who.n_workers : (uint32_t)a->workers;
    if (s == HK_OK)
        s = work(a, a->who.worker_id, n);
    const int rc = s == HK_OK ? 0 : failed("worker", s);
    if (c != NULL && s == HK_OK)
        (void)hk_role_center_wait(c, 60000, &r);
    hk_role_center_stop(c);
    return rc;
}

// ---- an evaluator ----------------------------------------------------------

static hk_status evaluate(void *user, const hk_evaluation *what,
                          hk_measure *out, size_t capacity, size_t *n) {
    app *a = user;
    hk_plan *plan = get_plan(a, HK_PREDICT);
    const hk_status s =
        digits_accuracy(&a->data, plan, what->values, &a->accuracy);
    hk_plan_release(plan);
    if (s != HK_OK)
        return s;
    printf("evaluator: step %lld: %.2f %%%s\n", (long long)what->global_step,
           a->accuracy, what->is_final ? ", final" : "");
    *n = capacity > 0;
    snprintf(out[0].name, sizeof out[0].name, "accuracy");
    out[0].value = a->accuracy;
    return HK_OK;
}

static int run_evaluator(app *a) {
    hk_role_evaluator_options o;
    hk_connect_options co;
    hk_role_result r;
    hk_plan *plan = get_plan(a, HK_PREDICT);
    connect_options(a, &co);
    hk_role_evaluator_options_init(&o, sizeof o);
    o.config = a->address == NULL ? a->config : NULL;
    o.connect = &co;
    o.layout = hk_plan_layout(plan);
    o.evaluate = evaluate;
    o.user = a;
    o.metrics = a->address == NULL ? a->metrics : NULL;
    o.throttle_ms = 2000;
    const hk_status s = hk_role_evaluator_run(&o, &r);
    hk_plan_release(plan);
    if (s != HK_OK)
        return failed("evaluator", s);
    if (a->accuracy < a->expect) {
        fprintf(stderr, "cluster: %.2f %% are less than the %.2f %% expected\n",
                a->accuracy, a->expect);
        return 1;
    }
    return 0;
}

// ---- everything in one process ---------------------------------------------

typedef struct hand {
    app *a;
    pthread_t thread;
    int32_t id;
    int rc;
} hand;

static void *hand_main(void *user) {
    hand *h = user;
    const hk_status s = work(h->a, h->id, (uint32_t)h->a->workers);
    h->rc = s == HK_OK ? 0 : failed("worker", s);
    return NULL;
}

static int run_all(app *a) {
    hk_role_center *c;
    hk_role_result r;
    a->address = "inproc:cluster";
    hk_status s = start_center(a, &c);
    if (s != HK_OK)
        return failed("center", s);
    hand *hands = calloc((size_t)a->workers, sizeof *hands);
    if (hands == NULL)
        exit(1);
    for (long i = 0; i < a->workers; i++) {
        hands[i] = (hand){.a = a, .id = (int32_t)i};
        if (pthread_create(&hands[i].thread, NULL, hand_main, &hands[i]) != 0)
            exit(1);
    }
    int rc = run_evaluator(a);
    for (long i = 0; i < a->workers; i++) {
        pthread_join(hands[i].thread, NULL);
        rc = rc != 0 ? rc : hands[i].rc;
    }
    s = hk_role_center_wait(c, 60000, &r);
    if (s == HK_OK)
        printf("center: %s; %lld steps\n", r.reason, (long long)r.global_step);
    hk_role_center_stop(c);
    free(hands);
    return s == HK_OK ? rc : failed("center", s);
}

// ---- options ---------------------------------------------------------------

static const char *from_environment(void *user, const char *name) {
    (void)user;
    return getenv(name);
}

static const char *text(int argc, char **argv, const char *name) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return NULL;
}

static int flag(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return 1;
    return 0;
}

static long number(int argc, char **argv, const char *name, long dflt) {
    const char *v = text(argc, argv, name);
    char *end;
    const long n = v == NULL ? dflt : strtol(v, &end, 10);
    if (v != NULL && (*end != '\0' || n < 0)) {
        fprintf(stderr, "cluster: %s %s: a number is needed\n", name, v);
        exit(2);
    }
    return n;
}

static void find_out(app *a, int argc, char **argv) {
    hk_cluster_options o;
    hk_cluster_options_init(&o, sizeof o);
    o.getenv = from_environment;
    // "cluster worker ..." is what "hooke worker ..." is.
    static const char *const roles[] = {"center", "worker", "evaluator"};
    for (int i = 0; i < 3 && argc > 1; i++)
        if (strcmp(argv[1], roles[i]) == 0)
            o.role = roles[i];
    o.index = text(argc, argv, "--index");
    o.center = text(argc, argv, "--center");
    o.listen = text(argc, argv, "--listen");
    if (hk_cluster_config_create(&o, &a->config) != HK_OK) {
        fprintf(stderr, "cluster: %s\n", hk_last_error());
        exit(2);
    }
    hk_cluster_config_get_info(a->config, &a->who);
    if (a->verbose)
        fputs(a->who.explain, stderr);
}

int main(int argc, char **argv) {
    app a = {.steps = number(argc, argv, "--steps", 600),
             .tau = number(argc, argv, "--tau", 10),
             .workers = number(argc, argv, "--workers", 2),
             .expected = number(argc, argv, "--workers", 0),
             .seconds = number(argc, argv, "--seconds", 0),
             .expect = (double)number(argc, argv, "--expect", 50),
             .insecure = flag(argc, argv, "--insecure"),
             .int8 = flag(argc, argv, "--int8"),
             .center_file = text(argc, argv, "--center-file"),
             .metrics = text(argc, argv, "--metrics")};
    const char *key = text(argc, argv, "--key");
    setvbuf(stdout, NULL, _IOLBF, 0);
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    co.log = say;
    a.verbose = flag(argc, argv, "--verbose");
    co.log_level = a.verbose ? HK_LOG_INFO : HK_LOG_WARNING;
    check(hk_context_create(&co, &a.ctx));
    the_context = a.ctx;
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    find_out(&a, argc, argv);
    if (key != NULL) {
        check(hk_key_load(key, &a.key));
        a.has_key = 1;
    }
    const int is_center = a.who.task == HK_TASK_CENTER;
    if (!is_center)
        check(digits_load(&a.data, text(argc, argv, "--mnist")));
    const int rc = a.who.is_local                    ? run_all(&a)
                   : is_center                       ? run_center(&a)
                   : a.who.task == HK_TASK_EVALUATOR ? run_evaluator(&a)
                                                     : run_worker(&a);
    hk_cluster_config_destroy(a.config);
    hk_context_destroy(a.ctx);
    digits_free(&a.data);
    return rc;
}
