// base/assert.h - invariants that are checked in every build.
//
// HKI_ASSERT is for the state of the library itself: arguments of internal
// functions, a state before and after a transition, a value before it is
// written. A process whose state is wrong ends at once, with a message on
// standard error: what it would write next would be wrong, too, and a center
// file is whole whenever its process ends. What comes from users, files or
// peers is never asserted; it gets an error.
#ifndef HKI_ASSERT_H
#define HKI_ASSERT_H

#define HKI_ASSERT(holds)                                                      \
    ((holds) ? (void)0                                                         \
             : hki_assert_failed(__FILE_NAME__, __LINE__, __func__, #holds))

void hki_assert_failed(const char *file, int line, const char *function,
                       const char *what) __attribute__((cold, noreturn));

#endif // HKI_ASSERT_H
