// banned.h - calls that do not belong in the library. Text goes to the log
// callback, faults become a status.
#ifndef HKI_BANNED_H
#define HKI_BANNED_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#pragma GCC poison sprintf vsprintf strcpy strcat strtok atoi atof rand srand
#pragma GCC poison gmtime localtime abort printf
#endif // HKI_BANNED_H
