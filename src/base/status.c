// status.c - names of statuses and the thread's last message.
#include "base/base.h"

// Contract of hk_last_error(): one text per thread, "" until a call fails.
static _Thread_local char last_error[1024];

const char *hk_status_string(hk_status s) {
    switch (s) {
#define CASE(name)                                                             \
    case name:                                                                 \
        return #name
        CASE(HK_OK);
        CASE(HK_E_INVALID_ARG);
        CASE(HK_E_NO_MEMORY);
        CASE(HK_E_SHAPE);
        CASE(HK_E_DTYPE);
        CASE(HK_E_NOT_FOUND);
        CASE(HK_E_EXISTS);
        CASE(HK_E_OVERFLOW);
        CASE(HK_E_RANGE);
        CASE(HK_E_STATE);
        CASE(HK_E_UNSUPPORTED);
        CASE(HK_E_IO);
        CASE(HK_E_DATA);
        CASE(HK_E_END);
        CASE(HK_E_TIMEOUT);
        CASE(HK_E_CANCELLED);
        CASE(HK_E_NOT_FINITE);
        CASE(HK_E_BACKEND);
        CASE(HK_E_UNAVAILABLE);
        CASE(HK_E_DENIED);
        CASE(HK_E_INTERNAL);
#undef CASE
    }
    return "HK_E_UNKNOWN";
}

const char *hk_last_error(void) {
    return last_error;
}

const char *hk_version(void) {
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
    return TEXT(HK_VERSION_MAJOR) "." TEXT(HK_VERSION_MINOR) "." TEXT(
        HK_VERSION_PATCH);
#undef TEXT
#undef TEXT_
}

hk_status(hki_fail)(hk_status s, const char *fmt, ...) {
    // Formatted aside, because an argument may be hk_last_error() itself.
    char text[sizeof last_error];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof text, fmt, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    memcpy(last_error, text, sizeof text);
    last_error[sizeof last_error - 1] = '\0';
    return s;
}

void hki_fault_set(hki_fault *f, hk_status s) {
    f->status = s;
    snprintf(f->text, sizeof f->text, "%s", s == HK_OK ? "" : hk_last_error());
}

hki_fault hki_fault_of(hk_status s) {
    hki_fault f;
    hki_fault_set(&f, s);
    return f;
}

hk_status hki_fault_raise(const hki_fault *f) {
    return f->status == HK_OK ? HK_OK : hki_fail(f->status, "%s", f->text);
}

hk_status hki_fault_take(hki_fault *f) {
    const hk_status s = hki_fault_raise(f);
    f->status = HK_OK;
    return s;
}
