// hooke/hooke.h - everything of Hooke in one include.
#ifndef HOOKE_HOOKE_H
#define HOOKE_HOOKE_H

#include "hooke/canned.h"
#include "hooke/ckpt.h"
#include "hooke/cluster.h"
#include "hooke/columns.h"
#include "hooke/context.h"
#include "hooke/data.h"
#include "hooke/digits.h"
#include "hooke/elastic.h"
#include "hooke/estimator.h"
#include "hooke/event.h"
#include "hooke/export.h"
#include "hooke/feature.h"
#include "hooke/files.h"
#include "hooke/graph.h"
#include "hooke/hooks.h"
#include "hooke/image.h"
#include "hooke/launch.h"
#include "hooke/nn.h"
#include "hooke/optim.h"
#include "hooke/roles.h"
#include "hooke/run_config.h"
#include "hooke/spec.h"
#include "hooke/status.h"
#include "hooke/sweep.h"
#include "hooke/tensor.h"
#include "hooke/train.h"
#include "hooke/train_and_evaluate.h"
#include "hooke/writers.h"

#endif // HOOKE_HOOKE_H
