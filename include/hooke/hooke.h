// hooke/hooke.h - everything of Hooke in one include.
#ifndef HOOKE_HOOKE_H
#define HOOKE_HOOKE_H

#include "hooke/context.h"
#include "hooke/data.h"
#include "hooke/elastic.h"
#include "hooke/graph.h"
#include "hooke/nn.h"
#include "hooke/optim.h"
#include "hooke/status.h"
#include "hooke/tensor.h"
#include "hooke/train.h"

#endif // HOOKE_HOOKE_H
