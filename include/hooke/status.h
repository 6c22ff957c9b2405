// hooke/status.h - the one error type of the library, and its version.
//
//     hk_status s = hk_something(...);
//     if (s != HK_OK) fprintf(stderr, "%s\n", hk_last_error());
//
// Every fallible call returns an hk_status; results leave through the last
// arguments and are written on success only.
#ifndef HOOKE_STATUS_H
#define HOOKE_STATUS_H

#ifdef __cplusplus // around the declarations of every header
#define HK_BEGIN_C extern "C" {
#define HK_END_C }
#else
#define HK_BEGIN_C
#define HK_END_C
#endif

HK_BEGIN_C

#if defined(HK_STATIC)
#define HK_API
#else
#define HK_API __attribute__((visibility("default")))
#endif

#define HK_VERSION_MAJOR 0
#define HK_VERSION_MINOR 3
#define HK_VERSION_PATCH 0

// Values are never reused or renumbered.
typedef enum hk_status {
    HK_OK = 0,
    HK_E_INVALID_ARG = 1,  // an argument is malformed or out of its range
    HK_E_NO_MEMORY = 2,    // an allocation failed
    HK_E_SHAPE = 3,        // shapes do not fit together
    HK_E_DTYPE = 4,        // element types do not fit together
    HK_E_NOT_FOUND = 5,    // no such name
    HK_E_EXISTS = 6,       // the name is taken
    HK_E_OVERFLOW = 7,     // a size does not fit its type
    HK_E_RANGE = 8,        // a value in the data is out of range (a label...)
    HK_E_STATE = 9,        // the call does not fit the object's state
    HK_E_UNSUPPORTED = 10, // valid, but not offered by this build or backend
    HK_E_IO = 11,          // the operating system reported an error
    HK_E_DATA = 12,        // a file or message is damaged
    HK_E_END = 13,         // end of data; not a fault
    HK_E_TIMEOUT = 14,     // a named deadline passed
    HK_E_CANCELLED = 15,   // a stop was requested
    HK_E_NOT_FINITE = 16,  // NaN or infinity where none may be
    HK_E_BACKEND = 17,     // a compute library refused or failed
    HK_E_UNAVAILABLE = 18, // a peer is away; worth a retry
    HK_E_DENIED = 19,      // wrong key, wrong identity, no permission
    HK_E_INTERNAL = 20     // a defect in Hooke itself
} hk_status;

// Name of a status ("HK_E_SHAPE"); a constant, also for unknown values.
HK_API const char *hk_status_string(hk_status s);

// Text of the calling thread's last failure, with names and values; "" if
// none. Valid until the next failing call of the same thread.
HK_API const char *hk_last_error(void);

// "0.3.0", of the library that is running (HK_VERSION_* is the header's).
HK_API const char *hk_version(void);

HK_END_C
#endif // HOOKE_STATUS_H
