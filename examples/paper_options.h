// paper_options.h - the methods that paper.c compares and its command line.
#ifndef PAPER_OPTIONS_H
#define PAPER_OPTIONS_H
#include <stdlib.h>
#include <string.h>
#include "hooke/hooke.h"
#include "paper_data.h"

enum {
    POINTS = 10, // tests of one run, the last at its end
    MAX_LIST = 8,
    MAX_SEEDS = 16
};

typedef struct method {
    const char *name;
    double rate[2]; // learning rates for the MLP and the CIFAR network
    hk_optimizer_kind inner;
    hk_method center; // 0: none
} method;

// The MLP's rates have the lowest MNIST test error after 2000 steps of seed 1
// (with 4 workers and period 16 where there is a center) out of 0.1, 0.2, 0.5,
// 1 (SGD, EASGD), 0.02, 0.05, 0.1, 0.2 (with momentum; EAMSGD ends alike at
// 0.1 and 0.2) and 0.01, 0.02, 0.05, 0.1 (DOWNPOUR, which prefers a higher
// rate at period 1). The CIFAR network's are among those the paper tried.
static const method METHODS[] = {
    {"sgd", {0.5, 0.01}, HK_OPT_GRADIENT_DESCENT, 0},
    {"momentum", {0.1, 0.001}, HK_OPT_MOMENTUM, 0},
    {"easgd", {0.5, 0.01}, HK_OPT_GRADIENT_DESCENT, HK_METHOD_ELASTIC},
    {"eamsgd", {0.1, 0.01}, HK_OPT_MOMENTUM, HK_METHOD_ELASTIC},
    {"downpour", {0.05, 0.001}, HK_OPT_GRADIENT_DESCENT, HK_METHOD_DOWNPOUR},
};
enum { EASGD = 2, N_METHODS = sizeof METHODS / sizeof METHODS[0] };

typedef struct list {
    long at[MAX_LIST];
    int n;
} list;

typedef struct options {
    const char *data_dir, *csv_path; // NULL: none
    list workers, periods;
    long seeds, steps, batch;
    double rates[N_METHODS], momentum;
    int chosen[N_METHODS]; // 1: takes part
    int is_cifar, is_quick, is_round_robin;
} options;

static long number(const char *name, const char *text, long max, char **end) {
    const long v = strtol(text, end, 10);
    if (*end == text || v < 1 || v > max)
        die("%s %s: a number from 1 to %ld is needed", name, text, max);
    return v;
}

static long one_number(const char *name, const char *text, long max) {
    char *end;
    const long v = number(name, text, max, &end);
    if (*end != '\0')
        die("%s %s: not a number", name, text);
    return v;
}

static list numbers(const char *name, const char *text, long max) {
    list l = {.n = 0};
    char *end;
    do {
        if (l.n == MAX_LIST)
            die("%s: more than %d numbers", name, MAX_LIST);
        l.at[l.n++] = number(name, text, max, &end);
        text = end + 1;
    } while (*end == ',');
    if (*end != '\0')
        die("%s: numbers and commas are needed", name);
    return l;
}

static double positive(const char *name, const char *text, double max) {
    char *end;
    const double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v > 0 && v < max))
        die("%s %s: a number between 0 and %g is needed", name, text, max);
    return v;
}

static int find_method(const char *name, size_t length) {
    for (int i = 0; i < N_METHODS; i++)
        if (strlen(METHODS[i].name) == length &&
            memcmp(METHODS[i].name, name, length) == 0)
            return i;
    die("%.*s: no such method", (int)length, name);
}

static void choose_methods(options *o, const char *names) {
    memset(o->chosen, 0, sizeof o->chosen);
    for (;; names++) {
        const size_t length = strcspn(names, ",");
        o->chosen[find_method(names, length)] = 1;
        names += length;
        if (*names == '\0')
            return;
    }
}

static void set_rate(options *o, const char *text) {
    const size_t length = strcspn(text, "=");
    const int m = find_method(text, length);
    o->rates[m] =
        positive("--rate", text + length + (text[length] == '='), 1000);
}

static void set_option(options *o, const char *name, const char *value) {
    if (strcmp(name, "--data-dir") == 0)
        o->data_dir = value;
    else if (strcmp(name, "--csv") == 0)
        o->csv_path = value;
    else if (strcmp(name, "--model") == 0 && strcmp(value, "mlp") == 0)
        o->is_cifar = 0;
    else if (strcmp(name, "--model") == 0 && strcmp(value, "cifar") == 0)
        o->is_cifar = 1;
    else if (strcmp(name, "--workers") == 0)
        o->workers = numbers(name, value, 1024);
    else if (strcmp(name, "--periods") == 0)
        o->periods = numbers(name, value, 1000000);
    else if (strcmp(name, "--methods") == 0)
        choose_methods(o, value);
    else if (strcmp(name, "--seeds") == 0)
        o->seeds = one_number(name, value, MAX_SEEDS);
    else if (strcmp(name, "--steps") == 0)
        o->steps = one_number(name, value, 100000000);
    else if (strcmp(name, "--batch") == 0)
        o->batch = one_number(name, value, 65536);
    else if (strcmp(name, "--rate") == 0)
        set_rate(o, value);
    else if (strcmp(name, "--momentum") == 0)
        o->momentum = positive(name, value, 1);
    else
        die("%s %s: no such option", name, value);
}

static const char USAGE[] =
    "paper [--data-dir DIR] [--model mlp|cifar] [--csv FILE] [--quick]\n"
    "      [--workers 1,4,16] [--periods 1,16,64] [--seeds 3] [--steps N]\n"
    "      [--batch 128] [--methods sgd,momentum,easgd,eamsgd,downpour]\n"
    "      [--rate METHOD=X] [--momentum X] [--round-robin]\n";

// A few seconds with generated digits, which prove that everything works.
static void set_quick(options *o) {
    o->is_quick = 1;
    o->workers = (list){.at = {4}, .n = 1};
    o->periods = (list){.at = {10}, .n = 1};
    o->seeds = 1;
    o->steps = 100;
    o->batch = 32;
    choose_methods(o, "sgd,easgd");
}

// The defaults are the whole comparison.
static void read_options(options *o, int argc, char **argv) {
    o->workers = (list){.at = {1, 4, 16}, .n = 3};
    o->periods = (list){.at = {1, 16, 64}, .n = 3};
    o->seeds = 3;
    o->steps = 2000;
    o->batch = 128;
    choose_methods(o, "sgd,momentum,easgd,eamsgd,downpour");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(USAGE, stdout);
            exit(0);
        } else if (strcmp(argv[i], "--quick") == 0) {
            set_quick(o);
        } else if (strcmp(argv[i], "--round-robin") == 0) {
            o->is_round_robin = 1;
        } else {
            if (i + 1 == argc)
                die("%s: no such option, or its value is missing", argv[i]);
            set_option(o, argv[i], argv[i + 1]);
            i++;
        }
    }
    if (o->steps < POINTS)
        die("--steps %ld: at least %d are needed", o->steps, POINTS);
    for (int m = 0; m < N_METHODS; m++)
        if (o->rates[m] == 0)
            o->rates[m] = METHODS[m].rate[o->is_cifar];
    if (o->momentum == 0)
        o->momentum = o->is_cifar ? 0.99 : 0.9; // the paper's is 0.99
}

#endif // PAPER_OPTIONS_H
