// division.h - how the training data will be divided among workers, in words.
#ifndef CLI_DIVISION_H
#define CLI_DIVISION_H
#include "experiment/experiment.h"

// Prints what a number of workers will read in an epoch, and what is odd about
// it. 0 or an exit code after a message.
int division_tell(const experiment *x, uint32_t workers);

#endif // CLI_DIVISION_H
