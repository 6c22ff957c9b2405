// train/train.h - what other modules use beyond hooke/train.h.
#ifndef HKI_TRAIN_H
#define HKI_TRAIN_H
#include "base/base.h"
#include "elastic/elastic.h"
#include "graph/graph.h"
#include "hooke/train.h"

#endif // HKI_TRAIN_H
