// libtorch, whose headers take most of the time that this program needs to compile: precompiled.
#pragma once

#include <torch/torch.h>
