// dates.h - dates in text, and the numbers that a model makes of them.
#ifndef CLI_DATES_H
#define CLI_DATES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum date_order {
    DATE_YMD = 0, // 2024-01-31 or 2024/1/31, 31.1.2024; a time may follow
    DATE_MDY,     // 1/31/2024
    DATE_DMY,     // 31/1/2024
    DATE_ORDERS
} date_order;

// What becomes of a date: NAME.year, NAME.month...
enum {
    DATE_PARTS = 6
};
extern const char *const date_parts[DATE_PARTS]; // year, month, day, weekday,
                                                 // hour, days

// false: it is none of this order. parts: DATE_PARTS numbers; the hour has the
// minutes as a fraction, days are counted from 1970.
bool date_parse(const char *text, size_t size, date_order order, float *parts);

#endif // CLI_DATES_H
