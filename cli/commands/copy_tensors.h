// copy_tensors.h - weights into another file: what convert and export share.
#ifndef CLI_COPY_H
#define CLI_COPY_H
#include "core/cli.h"

typedef struct weights_copy {
    hk_ckpt *from;
    const char *path;
    hk_ckpt_format format;
    // As in hk_copy_options; asked twice for every tensor.
    const char *(*name)(void *user, const hk_ckpt_entry *e);
    void *user;
    bool step;          // global_step goes into files of every format
    size_t taken, left; // after the copy: tensors written, and those that the
                        // format does not hold
} weights_copy;

hk_ckpt_format copy_format(const char *name); // safetensors, tf or npz
// Copies, with a line on stderr for each tensor that had to be left out or
// changed. TensorFlow's files get the step as well, where it is known: an
// Estimator does not restore without global_step. Those of other formats have
// it as metadata, and as a tensor when `step` is set. 0 or an exit code.
int copy_weights(weights_copy *k);

#endif // CLI_COPY_H
