// data_parts.h - how the training data will be divided among workers, in words.
#ifndef CLI_DATA_PARTS_H
#define CLI_DATA_PARTS_H
#include "experiment/experiment.h"

// Prints what a number of workers will read in an epoch, and what is odd about
// it. 0 or an exit code after a message.
int data_parts_tell(const experiment *x, uint32_t workers);

#endif // CLI_DATA_PARTS_H
